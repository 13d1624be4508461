"""The built-in losses against hand-worked numbers and the published formulas in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_tinker_server.nets.losses import FORMS, check_rows, choose
from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.wire import Row

THRESHOLDS = {"clip_low_threshold": 0.9, "clip_high_threshold": 1.05}
CONFIGS = {"gspo": THRESHOLDS, "dro": {"beta": 0.3}}


def by_formula(name, p, inputs, config):
    """The loss of one datum as the service's documentation writes it, without autograd."""
    if name == "cross_entropy":
        return -(p * inputs["weights"]).sum()
    q, a = inputs["logprobs"], inputs["advantages"]
    ratio = np.exp(p - q)
    if name == "importance_sampling":
        return -(ratio * a).sum()
    if name == "dro":
        return -(p * a - 0.5 * config["beta"] * (p - q) ** 2).sum()
    low = config.get("clip_low_threshold", {"ppo": 0.8, "cispo": 0.0}.get(name))
    high = config.get("clip_high_threshold", {"ppo": 1.2, "cispo": 4.0}.get(name))
    if name == "cispo":
        return -(np.clip(ratio, low, high) * p * a).sum()
    if name == "gspo":
        kept = inputs["sequence_ratio_mask"] != 0
        ratio = np.full(len(p), np.exp((p - q)[kept].mean()))
    return -np.minimum(ratio * a, np.clip(ratio, low, high) * a).sum()


def data(seed, length=6):
    """Logprobs and all tensors a loss may want."""
    random = np.random.default_rng(seed)
    p = -random.exponential(1.5, length)
    inputs = {
        "weights": random.normal(size=length),
        "logprobs": p + random.normal(0, 0.4, length),
        "advantages": random.normal(size=length),
        "sequence_ratio_mask": (random.random(length) < 0.7).astype(float),
    }
    inputs["sequence_ratio_mask"][0] = 1.0
    return p, inputs


def tensors(inputs, name):
    """Those of the loss, as it gets them."""
    return {key: torch.tensor(inputs[key]) for key in FORMS[name].inputs}


@pytest.mark.parametrize("name", FORMS)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_values_are_the_published_formulas(name, seed):
    """For random data each loss is the sum that the service documents."""
    p, inputs = data(seed)
    config = CONFIGS.get(name, {})

    found = choose(name, config)(torch.tensor(p), tensors(inputs, name))

    assert float(found) == pytest.approx(by_formula(name, p, inputs, config), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ["cross_entropy", "importance_sampling", "ppo", "dro"])
def test_gradients_are_those_of_the_value(name):
    """Losses without a stop-gradient: finite differences of the formula (double precision)."""
    p, inputs = data(7)
    config = CONFIGS.get(name, {})
    leaf = torch.tensor(p, requires_grad=True)

    choose(name, config)(leaf, tensors(inputs, name)).backward()

    for t in range(len(p)):
        step = np.eye(len(p))[t] * 1e-6
        slope = by_formula(name, p + step, inputs, config)
        slope = (slope - by_formula(name, p - step, inputs, config)) / 2e-6
        assert leaf.grad[t].item() == pytest.approx(slope, rel=1e-5, abs=1e-7)


def test_cispo_weights_the_log_probability():
    """Its gradient is -clip(ratio) A, also where the ratio is clipped: the ratio is constant."""
    p = torch.tensor([-1.0, -1.0], dtype=torch.double, requires_grad=True)
    inputs = {
        "logprobs": torch.tensor([-1.0, -4.0], dtype=torch.double),
        "advantages": torch.tensor([2.0, -0.5], dtype=torch.double),
    }

    choose("cispo", {})(p, inputs).backward()

    # ratios 1 and e^3 = 20.1, cut to 4
    assert p.grad.tolist() == pytest.approx([-2.0, 2.0])


def test_gspo_gives_each_token_the_ratio_of_the_sequence():
    """Its gradient is -s A for every token, with s over the masked tokens; 0 where clipped."""
    p = torch.tensor([-1.0, -2.0, -3.0], dtype=torch.double, requires_grad=True)
    inputs = {
        "logprobs": torch.tensor([-1.02, -2.0, 0.0], dtype=torch.double),
        "advantages": torch.tensor([1.0, 3.0, -1.0], dtype=torch.double),
        "sequence_ratio_mask": torch.tensor([1.0, 1.0, 0.0], dtype=torch.double),
    }
    s = np.exp(0.01)

    choose("gspo", THRESHOLDS)(p, inputs).backward()
    assert p.grad.tolist() == pytest.approx([-s, -3 * s, s])

    p.grad = None
    tight = {"clip_low_threshold": 0.999, "clip_high_threshold": 1.001}
    choose("gspo", tight)(p, inputs).backward()
    assert p.grad.tolist() == pytest.approx([0, 0, s])  # negative advantages are not held back


def test_ppo_takes_thresholds_of_each_token():
    """A datum may carry thresholds by token; they outrank the settings."""
    p = torch.zeros(2, dtype=torch.double, requires_grad=True)
    inputs = {
        "logprobs": torch.full((2,), -0.15, dtype=torch.double),  # ratio 1.16 at both
        "advantages": torch.ones(2, dtype=torch.double),
        "clip_high_threshold": torch.tensor([1.1, 1.3], dtype=torch.double),
    }

    choose("ppo", {})(p, inputs).backward()

    assert p.grad.tolist() == pytest.approx([0.0, -np.exp(0.15)])


@pytest.mark.parametrize(
    ("name", "config", "reason"),
    [
        ("grpo", {}, "no loss 'grpo' here; there are: cross_entropy"),
        ("ppo", {"clip": 0.2}, "no setting 'clip'; it has: clip_low_threshold"),
        ("ppo", {"clip_low_threshold": "low"}, "no finite number"),
        ("cispo", {"clip_high_threshold": float("nan")}, "no finite number"),
        ("dro", {}, "needs beta"),
        ("gspo", {"clip_low_threshold": 1.0}, "needs clip_high_threshold"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(name, config, reason):
    """Nothing is guessed and nothing ignored: the reason names the setting."""
    with pytest.raises(Refusal, match=reason):
        choose(name, config)


def row(**changes):
    """A datum of four tokens for importance sampling."""
    inputs = {
        "target_tokens": np.array([1, 2, 3, 4]),
        "logprobs": np.zeros(4, np.float32),
        "advantages": np.ones(4, np.float32),
    }
    inputs |= {key: value for key, value in changes.items() if key != "tokens"}
    tokens = changes.get("tokens", np.array([0, 1, 2, 3]))
    return Row(tokens=tokens, inputs={k: v for k, v in inputs.items() if v is not None})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tokens": np.zeros(0, np.int64)}, "datum 1 has 0 tokens; the model reads 1..8"),
        ({"tokens": np.zeros(9, np.int64)}, "datum 1 has 9 tokens"),
        ({"tokens": np.array([0, 1, 2, 30])}, "datum 1: model_input holds ids 0..30"),
        ({"target_tokens": np.array([0, 1, 2, -1])}, "target_tokens holds ids -1..2"),
        ({"target_tokens": np.array([0.5, 1, 2, 1])}, "not token ids"),
        ({"target_tokens": np.zeros((4, 2), np.int64)}, r"has the shape \[4, 2\]"),
        ({"advantages": None}, "datum 1 lacks advantages, which importance_sampling needs"),
        ({"advantages": np.ones(3, np.float32)}, r"advantages has the shape \[3\]"),
        ({"advantages": np.array([0, 1, np.nan, 1])}, "advantages holds numbers that are not"),
        ({"logprobs": np.array([0, -np.inf, 0, 1])}, "logprobs holds numbers that are not"),
        ({"mask": np.ones(4)}, "datum 1 has mask, which importance_sampling does not take"),
    ],
)
def test_data_that_a_loss_cannot_use_are_refused(changes, reason):
    """The datum is named by its number, and what is wrong with it."""
    check_rows([row(), row()], "importance_sampling", positions=8, vocab_size=30)
    with pytest.raises(Refusal, match=reason):
        check_rows([row(), row(**changes)], "importance_sampling", positions=8, vocab_size=30)


def test_no_data_are_refused():
    """An empty batch is a mistake, not a loss of 0."""
    with pytest.raises(Refusal, match="no data"):
        check_rows([], "ppo", positions=8, vocab_size=30)
