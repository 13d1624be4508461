"""Every policy-gradient loss against a loop over tokens, written from the formulas with `math`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr import CORRECTIONS, BackendError, BuildContext, Datum
from rlvr.testing import random_data
from rlvr_algos.losses.grpo import CispoLoss, GrpoLoss, GspoLoss, ReinforceLoss
from rlvr_algos.losses.policy_gradient import PolicyGradientLoss
from rlvr_algos.losses.ppo import PpoLoss

CONTEXT = BuildContext()
LOSSES: dict[str, type[PolicyGradientLoss]] = {
    "grpo": GrpoLoss,
    "gspo": GspoLoss,
    "cispo": CispoLoss,
    "reinforce": ReinforceLoss,
    "ppo": PpoLoss,
}
SHARED = {
    "kl_coef": st.one_of(st.just(0.0), st.floats(1e-3, 2.0)),
    "kl_estimator": st.sampled_from(["k1", "k2", "k3"]),
    "entropy_coef": st.one_of(st.just(0.0), st.floats(1e-3, 1.0)),
    "correction": st.sampled_from(CORRECTIONS),
    "correction_cap": st.floats(1.05, 5.0),
}
CLIPS = {"clip_low": st.floats(0.0, 0.9), "clip_high": st.floats(0.0, 3.0)}
OWN: Mapping[str, Mapping[str, Any]] = {
    "grpo": CLIPS,
    "gspo": CLIPS,
    "cispo": {"clip_low": st.floats(0.0, 1.0), "clip_high": st.floats(0.0, 3.0)},
    "reinforce": {},
    "ppo": {**CLIPS, "value_coef": st.floats(0.1, 2.0), "value_clip": st.floats(0.0, 1.0)},
}


@st.composite
def cases(draw: Callable[..., Any], name: str) -> tuple[PolicyGradientLoss, int]:
    """A loss with options drawn at random, and a seed for the data."""
    cls = LOSSES[name]
    options = {key: draw(values) for key, values in {**SHARED, **OWN[name]}.items()}
    return cls(cls.config_class(**options), CONTEXT), draw(st.integers(0, 10**6))


def forward(
    loss: PolicyGradientLoss, seed: int
) -> tuple[list[Datum], list[torch.Tensor], dict[str, list[torch.Tensor]]]:
    """Data with what the loss needs near the sampler's numbers, logprobs, and outputs."""
    rng = np.random.default_rng(seed)
    data = random_data(seed=seed, needs=loss.needs.annotations)
    for datum in data:
        for name in {"policy"} & loss.needs.annotations:
            datum.annotations[name][:] = datum.logprobs + rng.normal(0, 0.5, datum.mask.size)
    rows = [
        torch.tensor(d.logprobs + rng.uniform(-0.8, 0.8, d.mask.size), requires_grad=True)
        for d in data
    ]
    outputs = {
        name: [torch.tensor(rng.uniform(-1, 2, d.mask.size), requires_grad=True) for d in data]
        for name in sorted(loss.needs.outputs)
    }
    return data, rows, outputs


def oracle(
    loss: PolicyGradientLoss,
    data: Sequence[Datum],
    rows: Sequence[Sequence[float]],
    outputs: Mapping[str, Sequence[Sequence[float]]],
) -> dict[str, float]:
    """Loss and all sums, straight from the formulas of the pages."""
    name, config = loss.name, loss._config
    sums: dict[str, float] = {}

    def add(key: str, value: float) -> None:
        sums[key] = sums.get(key, 0.0) + value

    for place, (datum, row) in enumerate(zip(data, rows, strict=True)):
        own = [t for t in range(len(datum.tokens)) if datum.mask[t]]
        sampled = [float(x) for x in datum.logprobs]
        is_corrected = config.correction != "none"
        old = [float(x) for x in datum.annotations["policy"]] if is_corrected else sampled
        mean_log_ratio = sum(row[t] - old[t] for t in own) / len(own)
        product = math.exp(sum(old[t] - sampled[t] for t in own))
        for t in own:
            w, a = float(datum.weights[t]), float(datum.advantages[t])
            ratio = math.exp(row[t] - old[t])
            gap = old[t] - sampled[t]
            scale = 1.0
            if is_corrected:
                r = product if config.correction.endswith("sequence") else math.exp(gap)
                cap = config.correction_cap
                if config.correction.startswith("tis"):
                    scale, is_out = min(r, cap), r > cap
                else:
                    is_out = not 1 / cap <= r <= cap
                    scale = 0.0 if is_out else r
                add("mismatch/kl", w * (math.exp(gap) - 1 - gap))
                add("mismatch/clipped", w * is_out)
                top = sums.get("mismatch/ratio/max", 0.0)
                sums["mismatch/ratio/max"] = max(top, math.exp(gap))
            low = 1 - getattr(config, "clip_low", 0.0)
            high = 1 + getattr(config, "clip_high", 0.0)
            used = math.exp(mean_log_ratio) if name == "gspo" else ratio
            clipped = min(max(used, low), high)
            if name == "cispo":
                term = -clipped * a * row[t]
                add("clip/low", w * (used < low))
                add("clip/high", w * (used > high))
            elif name == "reinforce":
                term = -ratio * a
            else:
                term = -min(used * a, clipped * a)
                add("clip/low", w * (used < low and a < 0))
                add("clip/high", w * (used > high and a > 0))
            add("loss/policy", w * scale * term)
            add("loss", w * scale * term)
            add("ratio/mean", w * ratio)
            sums["ratio/max"] = max(sums.get("ratio/max", 0.0), ratio)
            moved = row[t] - sampled[t]
            add("kl/sampler", w * (math.exp(moved) - 1 - moved))
            add("logprob/mean", w * row[t])
            if config.kl_coef:
                d = row[t] - float(datum.annotations["reference"][t])
                kl = {"k1": d, "k2": d * d / 2, "k3": math.exp(-d) - 1 + d}[config.kl_estimator]
                add("kl/reference", w * kl)
                add("loss", w * config.kl_coef * kl)
            if config.entropy_coef:
                add("entropy/mean", w * outputs["entropy"][place][t])
                add("loss", -w * config.entropy_coef * outputs["entropy"][place][t])
            if name == "ppo":
                now, before = outputs["value"][place][t], float(datum.annotations["value"][t])
                wanted = float(datum.annotations["return"][t])
                error, is_held = (now - wanted) ** 2, False
                if config.value_clip:
                    bound = config.value_clip
                    held = (before + min(max(now - before, -bound), bound) - wanted) ** 2
                    error, is_held = max(error, held), held > error
                add("loss/value", w * error / 2)
                add("loss", w * config.value_coef * error / 2)
                add("value/mean", w * now)
                add("return/mean", w * wanted)
                add("value/clipped", w * is_held)
    return sums


@pytest.mark.parametrize("name", LOSSES)
def test_equals_a_loop_over_tokens(name: str) -> None:
    """Loss and every metric, for any options and data, in float64."""

    @given(case=cases(name))
    @settings(max_examples=60, deadline=None)
    def check(case: tuple[PolicyGradientLoss, int]) -> None:
        loss, seed = case
        data, rows, outputs = forward(loss, seed)

        value, metrics = loss(data, rows, outputs)

        plain = {k: [x.tolist() for x in v] for k, v in outputs.items()}
        wanted = oracle(loss, data, [x.tolist() for x in rows], plain)
        assert value.dtype == torch.float64
        assert {"loss": value.item(), **metrics} == pytest.approx(wanted, rel=1e-9, abs=1e-10)

    check()


@pytest.mark.parametrize("name", ["grpo", "reinforce", "ppo"])
def test_gradient_equals_finite_differences_of_the_loop(name: str) -> None:
    """For losses without stopped gradients, autograd and the oracle's slope agree."""

    @given(case=cases(name))
    @settings(max_examples=15, deadline=None)
    def check(case: tuple[PolicyGradientLoss, int]) -> None:
        loss, seed = case
        if loss._config.kl_estimator == "k1":  # its gradient is k2's on purpose: test_kl.py
            return
        data, rows, outputs = forward(loss, seed)
        loss(data, rows, outputs)[0].backward()

        plain = {k: [x.tolist() for x in v] for k, v in outputs.items()}
        values = [x.tolist() for x in rows]
        step = 1e-6
        t = len(values[0]) - 1  # the last token is always the policy's
        slopes = []
        for sign in (1, -1):
            values[0][t] += sign * step
            slopes.append(oracle(loss, data, values, plain)["loss"])
            values[0][t] -= sign * step
        assert rows[0].grad is not None
        wanted = (slopes[0] - slopes[1]) / (2 * step)
        assert rows[0].grad[t].item() == pytest.approx(wanted, rel=1e-4, abs=1e-6)

    check()


def test_cispo_keeps_the_gradient_that_grpo_drops() -> None:
    """Ratio e, bound 1.2, A = 1: the gradient is 0, -1.2 (its weight) and -e (no bound)."""
    datum = Datum(tokens=[0], mask=[True], logprobs=[-2.0], advantages=[1.0], weights=[1.0])
    found = {}
    for name in ("grpo", "cispo", "reinforce"):
        cls = LOSSES[name]
        options = {} if name == "reinforce" else {"clip_low": 0.2, "clip_high": 0.2}
        row = torch.tensor([-1.0], dtype=torch.float64, requires_grad=True)
        cls(cls.config_class(**options), CONTEXT)([datum], [row], {})[0].backward()
        assert row.grad is not None
        found[name] = row.grad.item()

    assert found == pytest.approx({"grpo": 0.0, "cispo": -1.2, "reinforce": -math.e})


def test_gspo_worked_by_hand() -> None:
    """
    Log-ratios 0.3 and 0.1 have the sequence ratio exp(0.2), about 1.2214.

    Unclipped, with A = 1 and weights 1/2, the loss is -1.2214 and each token's gradient half of
    it; with clip_high 0.2 the loss is -1.2 and the gradients are 0, the small ratio's too.
    """
    datum = Datum(
        tokens=[0, 1], mask=[True, True], logprobs=[-1, -2], advantages=[1, 1], weights=[0.5, 0.5]
    )
    for high, loss, gradient in ((0.3, -math.exp(0.2), -math.exp(0.2) / 2), (0.2, -1.2, 0.0)):
        row = torch.tensor([-0.7, -1.9], dtype=torch.float64, requires_grad=True)
        config = GspoLoss.config_class(clip_low=0.2, clip_high=high)
        value, _ = GspoLoss(config, CONTEXT)([datum], [row], {})
        value.backward()
        assert row.grad is not None
        assert value.item() == pytest.approx(loss)
        assert row.grad.tolist() == pytest.approx([gradient, gradient])


@pytest.mark.parametrize(
    ("kind", "scales"),
    [
        ("tis-token", (2.5, 0.5)),  # ratios 3 and 1/2, cap 2.5
        ("mis-token", (0.0, 0.5)),
        ("tis-sequence", (1.5, 1.5)),  # their product
        ("mis-sequence", (1.5, 1.5)),
    ],
)
def test_corrections_worked_by_hand(kind: str, scales: tuple[float, float]) -> None:
    """Trainer over sampler 3 and 1/2, policy at the trainer: the gradient is -w A times these."""
    sampled = np.log([0.1, 0.4])
    trained = np.log([0.3, 0.2])
    datum = Datum(
        tokens=[0, 1],
        mask=[True, True],
        logprobs=sampled,
        advantages=[1, 1],
        weights=[0.5, 0.5],
        annotations={"policy": trained.astype(np.float32)},
    )
    row = torch.tensor(trained, requires_grad=True)
    config = GrpoLoss.config_class(correction=kind, correction_cap=2.5)

    value, metrics = GrpoLoss(config, CONTEXT)([datum], [row], {})
    value.backward()

    assert row.grad is not None
    assert row.grad.tolist() == pytest.approx([-scales[0] / 2, -scales[1] / 2], rel=1e-5)
    assert metrics["mismatch/ratio/max"] == pytest.approx(3.0, rel=1e-5)
    assert metrics["mismatch/clipped"] == (0.5 if "token" in kind else 0.0)
    k3 = [3 - 1 - math.log(3), 0.5 - 1 - math.log(0.5)]
    assert metrics["mismatch/kl"] == pytest.approx(sum(k3) / 2, rel=1e-5)
    assert metrics["ratio/mean"] == pytest.approx(1.0, rel=1e-5)


def test_correction_equals_the_plain_ratio_on_the_first_pass() -> None:
    """Under the cap, r_policy * (trainer / sampler) is the ratio to the sampler: same gradient."""
    data = random_data(seed=1, needs={"policy"})
    rows = [torch.tensor(d.annotations["policy"].astype(float)) for d in data]
    gradients = []
    for correction in ("none", "tis-token"):
        leaves = [x.clone().requires_grad_() for x in rows]
        config = ReinforceLoss.config_class(correction=correction, correction_cap=1e6)
        ReinforceLoss(config, CONTEXT)(data, leaves, {})[0].backward()
        gradients.append(torch.cat([x.grad for x in leaves if x.grad is not None]))

    assert torch.allclose(*gradients, rtol=1e-5)


def test_ppo_value_loss_worked_by_hand() -> None:
    """
    Old estimate 0, return 1, new estimate 0.5, held at 0.2: the larger error is (0.2 - 1)^2.

    Half of it is 0.32; the clip stops the critic's gradient. Unclipped it is 0.125, gradient
    0.5 * (0.5 - 1).
    """
    datum = Datum(
        tokens=[0],
        mask=[True],
        logprobs=[-1.0],
        advantages=[0.0],
        weights=[1.0],
        annotations={
            "value": np.zeros(1, np.float32),
            "return": np.ones(1, np.float32),
        },
    )
    for clip, wanted, gradient in ((0.2, 0.32, 0.0), (0.0, 0.125, -0.25)):
        value = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
        config = PpoLoss.config_class(value_clip=clip, value_coef=0.5)
        loss, metrics = PpoLoss(config, CONTEXT)(
            [datum], [torch.tensor([-1.0], dtype=torch.float64)], {"value": [value]}
        )
        loss.backward()
        assert value.grad is not None
        assert metrics["loss/value"] == pytest.approx(wanted)
        assert loss.item() == pytest.approx(wanted / 2)
        assert value.grad.item() == pytest.approx(gradient)


def test_entropy_bonus_pushes_the_entropy_up() -> None:
    """The loss falls by entropy_coef for each nat: the gradient of H is -coef * weight."""
    data = random_data(seed=2)
    rows = [torch.tensor(d.logprobs.astype(float), requires_grad=True) for d in data]
    entropy = [torch.ones(len(d.tokens), dtype=torch.float64, requires_grad=True) for d in data]
    loss = GrpoLoss(GrpoLoss.config_class(entropy_coef=0.1), CONTEXT)

    value, metrics = loss(data, rows, {"entropy": entropy})
    value.backward()

    assert metrics["entropy/mean"] == pytest.approx(1.0)
    for datum, x in zip(data, entropy, strict=True):
        assert x.grad is not None
        assert x.grad.tolist() == pytest.approx((-0.1 * datum.weights).tolist())


def test_a_backend_without_the_output_is_told() -> None:
    """An entropy bonus without entropies is an error that says what is missing."""
    data = random_data()
    rows = [torch.tensor(d.logprobs) for d in data]
    loss = GrpoLoss(GrpoLoss.config_class(entropy_coef=0.1), CONTEXT)

    with pytest.raises(BackendError, match=r"'entropy'(.|\n)*logprobs only"):
        loss(data, rows, {})


def test_extras_are_off_by_default() -> None:
    """No annotation, no output: a plain loss costs nothing but the policy's logprobs."""
    for name, cls in LOSSES.items():
        loss = cls(None, CONTEXT)
        wanted = ({"value", "return"}, {"value"}) if name == "ppo" else (set(), set())
        assert (loss.needs.annotations, loss.needs.outputs) == wanted


def test_mismatch_is_noticed() -> None:
    """Past the threshold a sentence says the number and what to set; otherwise silence."""
    loss = GrpoLoss(GrpoLoss.config_class(mismatch_warn=0.01), CONTEXT)

    (text,) = loss.warnings({"mismatch/kl": 0.5})

    assert "0.5 nats" in text
    assert "grpo.correction=tis-token" in text
    assert list(loss.warnings({"mismatch/kl": 0.01})) == []
    assert list(loss.warnings({})) == []
    never = GrpoLoss(GrpoLoss.config_class(mismatch_warn=0.0), CONTEXT)
    assert list(never.warnings({"mismatch/kl": 0.5})) == []
