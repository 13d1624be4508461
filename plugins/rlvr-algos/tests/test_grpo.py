"""The loss `grpo` against the published formula, worked by hand and by brute force."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import attrs
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr import BackendError, BuildContext, Datum
from rlvr.testing import random_data
from rlvr.training.minibatches import weigh
from rlvr_algos.config import GrpoConfig
from rlvr_algos.losses.grpo import GrpoLoss

CONTEXT = BuildContext()
CONFIGS = st.builds(
    GrpoConfig,
    clip_low=st.floats(0.0, 0.9),
    clip_high=st.floats(0.0, 3.0),
    kl_coef=st.one_of(st.just(0.0), st.floats(1e-3, 2.0)),
    kl_estimator=st.sampled_from(["k1", "k2", "k3"]),
)


def one_token(new: float, old: float, advantage: float, **annotations: float) -> Datum:
    """A datum of a single token of the policy, weight 1."""
    return Datum(
        tokens=[0],
        mask=[True],
        logprobs=[old],
        advantages=[advantage],
        weights=[1.0],
        annotations={k: np.array([v], np.float32) for k, v in annotations.items()},
    )


def tensors(data: Sequence[Datum], seed: int, spread: float = 0.8) -> list[torch.Tensor]:
    """Float64 logprobs (T,) around the sampler's."""
    rng = np.random.default_rng(seed)
    return [
        torch.tensor(d.logprobs + rng.uniform(-spread, spread, len(d.tokens)), requires_grad=True)
        for d in data
    ]


def brute_force(
    config: GrpoConfig, data: Sequence[Datum], logprobs: Sequence[Sequence[float]]
) -> dict[str, float]:
    """Loss and metrics by a loop over tokens, with `math` only, straight from the formulas."""
    sums = dict.fromkeys(
        ["loss", "loss/policy", "ratio/mean", "clip/low", "clip/high", "kl/sampler"], 0.0
    )
    sums |= {"logprob/mean": 0.0, "kl/reference": 0.0, "ratio/max": 0.0}
    for datum, row in zip(data, logprobs, strict=True):
        for t in range(len(datum.tokens)):
            if not datum.mask[t]:
                continue
            weight, advantage = float(datum.weights[t]), float(datum.advantages[t])
            new, old = row[t], float(datum.logprobs[t])
            ratio = math.exp(new - old)
            clipped = min(max(ratio, 1 - config.clip_low), 1 + config.clip_high)
            sums["loss/policy"] -= weight * min(ratio * advantage, clipped * advantage)
            sums["ratio/mean"] += weight * ratio
            sums["ratio/max"] = max(sums["ratio/max"], ratio)
            sums["clip/low"] += weight * (ratio < 1 - config.clip_low and advantage < 0)
            sums["clip/high"] += weight * (ratio > 1 + config.clip_high and advantage > 0)
            sums["kl/sampler"] += weight * (ratio - 1 - (new - old))
            sums["logprob/mean"] += weight * new
            if config.kl_coef:
                gap = new - float(datum.annotations["reference"][t])
                kl = {"k1": gap, "k2": gap * gap / 2, "k3": math.exp(-gap) - 1 + gap}
                sums["kl/reference"] += weight * kl[config.kl_estimator]
    sums["loss"] = sums["loss/policy"] + config.kl_coef * sums["kl/reference"]
    if not config.kl_coef:
        del sums["kl/reference"]
    return sums


@given(config=CONFIGS, seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_equals_the_brute_force_oracle(config: GrpoConfig, seed: int) -> None:
    """Loss and every metric equal a loop over tokens, for any options and data, in float64."""
    data = random_data(seed=seed, needs={"reference"})
    logprobs = tensors(data, seed)

    loss, metrics = GrpoLoss(config, CONTEXT)(data, logprobs, {})

    wanted = brute_force(config, data, [x.tolist() for x in logprobs])
    assert loss.dtype == torch.float64
    assert {"loss": loss.item(), **metrics} == pytest.approx(wanted, rel=1e-10, abs=1e-12)


@given(config=CONFIGS, seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_gradient_equals_the_brute_force_oracle(config: GrpoConfig, seed: int) -> None:
    """
    Each logprob gets -w r A where the clip does not bind, 0 where it does; plus the KL's.

    KL: w beta d for k1 and k2, w beta (1 - exp(-d)) for k3, d = logprob - reference.
    """
    data = random_data(seed=seed, needs={"reference"})
    logprobs = tensors(data, seed)

    GrpoLoss(config, CONTEXT)(data, logprobs, {})[0].backward()

    for datum, x in zip(data, logprobs, strict=True):
        assert x.grad is not None
        for t, (new, found) in enumerate(zip(x.tolist(), x.grad.tolist(), strict=True)):
            if not datum.mask[t]:
                assert found == 0.0
                continue
            weight, advantage = float(datum.weights[t]), float(datum.advantages[t])
            ratio = math.exp(new - float(datum.logprobs[t]))
            is_stopped = (advantage > 0 and ratio > 1 + config.clip_high) or (
                advantage < 0 and ratio < 1 - config.clip_low
            )
            wanted = 0.0 if is_stopped else -weight * ratio * advantage
            gap = new - float(datum.annotations["reference"][t])
            slope = 1 - math.exp(-gap) if config.kl_estimator == "k3" else gap
            wanted += config.kl_coef * weight * slope
            assert found == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [
        (1.0, 2.0, -2.0),  # on policy: minus the advantage
        (1.5, 1.0, -1.28),  # a good token already likelier: stopped at 1 + 0.28
        (1.5, -1.0, 1.5),  # a bad token become likelier: pushed back in full
        (0.5, 1.0, -0.5),  # a good token become rarer: pulled back, its ratio counts
        (0.5, -1.0, 0.8),  # a bad token already rarer: stopped at 1 - 0.2
    ],
)
def test_worked_by_hand(ratio: float, advantage: float, loss: float) -> None:
    """min(r A, clip(r, 0.8, 1.28) A), the five cases of the PPO figure."""
    datum = one_token(0.0, -math.log(ratio) - 1.0, advantage)
    new = torch.tensor([-1.0], dtype=torch.float64)

    value, _ = GrpoLoss(GrpoConfig(clip_low=0.2, clip_high=0.28), CONTEXT)([datum], [new], {})

    assert value.item() == pytest.approx(loss, abs=1e-6)


def test_kl_worked_by_hand() -> None:
    """The policy gives a token 0.5, the reference 0.25: k1 = 0.6931, k2 = 0.2402, k3 = 0.1931."""
    for estimator, wanted in (("k1", 0.693147), ("k2", 0.240227), ("k3", 0.193147)):
        config = GrpoConfig(kl_coef=2.0, kl_estimator=estimator)
        datum = one_token(0.0, math.log(0.5), 0.0, reference=math.log(0.25))
        new = torch.tensor([math.log(0.5)], dtype=torch.float64)

        value, metrics = GrpoLoss(config, CONTEXT)([datum], [new], {})

        assert metrics["kl/reference"] == pytest.approx(wanted, abs=1e-6)
        assert value.item() == pytest.approx(2.0 * wanted, abs=2e-6)


@pytest.mark.parametrize("estimator", ["none", "k2", "k3"])
def test_gradcheck(estimator: str) -> None:
    """Autograd agrees with finite differences where the loss is smooth (k1 picks its gradient)."""
    config = (
        GrpoConfig(clip_low=0.3, clip_high=0.5)
        if estimator == "none"
        else GrpoConfig(clip_low=0.3, clip_high=0.5, kl_coef=0.7, kl_estimator=estimator)
    )
    data = random_data(seed=5, needs={"reference"})
    loss = GrpoLoss(config, CONTEXT)

    assert torch.autograd.gradcheck(lambda *x: loss(data, list(x), {})[0], tuple(tensors(data, 6)))


@pytest.mark.parametrize("aggregation", ["sequence", "token", "fixed"])
def test_published_averages(aggregation: str) -> None:
    """With the core's weights the loss is the published mean: GRPO's, DAPO's, Dr. GRPO's."""
    config = GrpoConfig(clip_low=0.2, clip_high=0.2)
    data = weigh(random_data(seed=8, count=6), aggregation, max_tokens=16)
    rows = [x.tolist() for x in tensors(data, 9)]

    value, _ = GrpoLoss(config, CONTEXT)(
        data, [torch.tensor(r, dtype=torch.float64) for r in rows], {}
    )

    sums, lengths = [], []
    for datum, row in zip(data, rows, strict=True):
        plain = attrs.evolve(datum, weights=datum.mask.astype(float))
        sums.append(-brute_force(config, [plain], [row])["loss"])
        lengths.append(int(datum.mask.sum()))
    objective = {
        # arXiv:2402.03300, eq. 3: 1/G sum_i 1/|o_i| sum_t
        "sequence": sum(s / n for s, n in zip(sums, lengths, strict=True)) / len(data),
        # arXiv:2503.14476, eq. 8: 1/(sum_i |o_i|) sum_i sum_t
        "token": sum(sums) / sum(lengths),
        # arXiv:2503.20783: sums over a constant length, here of each turn
        "fixed": sum(sums) / (sum(is_own for d in data for is_own, _ in groupby(d.mask)) * 16),
    }[aggregation]
    assert -value.item() == pytest.approx(objective, rel=1e-5)


def test_later_steps_on_a_batch_stay_corrected() -> None:
    """
    Off policy the gradient is still that of the expected advantage under the *new* policy.

    All V tokens are enumerated with the sampler's probabilities as weights, so the sum over data
    is an expectation and can be compared with the exact derivative.
    """
    generator = torch.Generator().manual_seed(0)
    old, advantages = torch.randn(2, 6, generator=generator, dtype=torch.float64)
    logits = (old + 0.7 * torch.randn(6, generator=generator, dtype=torch.float64)).requires_grad_()
    sampled = old.log_softmax(0)
    data = [
        Datum(
            tokens=[v],
            mask=[True],
            logprobs=[sampled[v].item()],
            advantages=[advantages[v].item()],
            weights=[sampled[v].exp().item()],
        )
        for v in range(6)
    ]
    config = GrpoConfig(clip_low=0.999, clip_high=1e6)  # the clip off: it is what biases

    new = logits.log_softmax(0)
    loss, metrics = GrpoLoss(config, CONTEXT)(data, [new[v : v + 1] for v in range(6)], {})
    (found,) = torch.autograd.grad(loss, logits)

    expected_advantage = (logits.softmax(0) * advantages).sum()
    (wanted,) = torch.autograd.grad(-expected_advantage, logits)
    assert torch.allclose(found, wanted, atol=1e-6)
    assert metrics["ratio/mean"] == pytest.approx(1.0, abs=1e-6)  # E_q[p / q] = 1
    exact_kl = (sampled.exp() * (sampled - new)).sum().item()
    assert metrics["kl/sampler"] == pytest.approx(exact_kl, abs=1e-6)


def test_needs_the_reference_only_for_a_kl() -> None:
    """No KL, no reference model: nobody pays for a second forward pass that is multiplied by 0."""
    assert GrpoLoss(GrpoConfig(kl_coef=0.0), CONTEXT).needs.annotations == frozenset()
    assert GrpoLoss(GrpoConfig(kl_coef=0.1), CONTEXT).needs.annotations == {"reference"}
    assert GrpoLoss(None, CONTEXT).needs.annotations == frozenset()


def test_missing_reference_is_named() -> None:
    """Data that were not annotated are refused with what is missing, not with a KeyError."""
    datum = attrs.evolve(one_token(0.0, -1.0, 1.0), problem_id="p7")

    with pytest.raises(BackendError, match=r"reference(.|\n)*'p7'"):
        GrpoLoss(GrpoConfig(kl_coef=0.1), CONTEXT)([datum], [torch.tensor([-1.0])], {})


def test_logprobs_of_other_lengths_are_refused() -> None:
    """One logprob too few never shifts tokens against their advantages in silence."""
    data = random_data(count=2)

    with pytest.raises(BackendError, match="one logprob a token"):
        GrpoLoss(None, CONTEXT)(data, [torch.zeros(len(d.tokens) - 1) for d in data], {})


def test_half_precision_is_computed_in_float32() -> None:
    """Logprobs in bfloat16 give a float32 loss: weights of 1/N do not vanish."""
    data = random_data(count=3)
    logprobs = [torch.zeros(len(d.tokens), dtype=torch.bfloat16) - 1 for d in data]

    assert GrpoLoss(None, CONTEXT)(data, logprobs, {})[0].dtype == torch.float32


def test_data_without_policy_tokens_weigh_nothing() -> None:
    """A micro-batch that holds only prompts gives loss 0 and finite metrics."""
    datum = attrs.evolve(one_token(0.0, 0.0, 0.0), mask=[False], weights=[0.0])
    logprobs = torch.tensor([-1.0], requires_grad=True)

    loss, metrics = GrpoLoss(None, CONTEXT)([datum], [logprobs], {})
    loss.backward()

    assert loss.item() == 0.0
    assert all(value == 0.0 for value in metrics.values()), metrics


def test_ratios_are_finite_for_tokens_the_policy_forbids() -> None:
    """A logprob of minus infinity (probability 0 in the trainer) gives no NaN anywhere."""
    data = [one_token(0.0, -1.0, a, reference=-1.0) for a in (1.0, -1.0)]
    for estimator in ("k1", "k2", "k3"):
        logprobs = [torch.tensor([-math.inf], requires_grad=True) for _ in data]
        loss, metrics = GrpoLoss(GrpoConfig(kl_coef=0.1, kl_estimator=estimator), CONTEXT)(
            data, logprobs, {}
        )
        loss.backward()

        assert math.isfinite(loss.item())
        assert all(math.isfinite(value) for value in metrics.values()), metrics
        assert all(torch.isfinite(x.grad).all() for x in logprobs if x.grad is not None)


@pytest.mark.parametrize(
    "options",
    [{"clip_low": 1.0}, {"clip_high": -0.1}, {"kl_coef": -1.0}, {"kl_estimator": "k4"}],
    ids=str,
)
def test_impossible_options_are_refused(options: dict[str, object]) -> None:
    """A bound that turns the ratio negative, or an estimator that does not exist, is no config."""
    with pytest.raises(ValueError, match=next(iter(options))):
        GrpoConfig(**options)  # type: ignore[arg-type]
