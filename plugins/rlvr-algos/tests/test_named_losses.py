"""What a service's built-in losses compute is what ours do: values and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rlvr import BuildContext, Datum, NamedForm
from rlvr.testing import random_data
from rlvr.training.minibatches import weigh
from rlvr_algos.losses.grpo import CispoLoss, GrpoLoss, GspoLoss, ReinforceLoss
from rlvr_algos.losses.ppo import PpoLoss
from rlvr_algos.losses.sft import SftLoss

CONTEXT = BuildContext()
Row = NDArray[np.float64]
LOSSES: dict[str, Any] = {
    "grpo": lambda **o: GrpoLoss(GrpoLoss.config_class(**o), CONTEXT),
    "gspo": lambda **o: GspoLoss(GspoLoss.config_class(**o), CONTEXT),
    "cispo": lambda **o: CispoLoss(CispoLoss.config_class(**o), CONTEXT),
    "reinforce": lambda **o: ReinforceLoss(ReinforceLoss.config_class(**o), CONTEXT),
    "sft": lambda **_: SftLoss(None, CONTEXT),
}
CLIPPED = ("grpo", "gspo", "cispo")


def service(
    form: NamedForm, logprobs: Row, sampled: Row, credit: Row, masks: dict[str, Row]
) -> tuple[float, Row]:
    """
    One sequence's loss and its gradient by the service's published formulas.

    tinker-docs.thinkingmachines.ai/losses, and .../losses/gspo: sums over the tokens that were
    sent; `credit` are `weights` for cross_entropy and `advantages` for all others.
    """
    low = form.config.get("clip_low_threshold", -np.inf)
    high = form.config.get("clip_high_threshold", np.inf)
    if form.name == "cross_entropy":
        return -float((logprobs * credit).sum()), -credit
    ratio = np.exp(logprobs - sampled)
    if form.name == "importance_sampling":
        return -float((ratio * credit).sum()), -ratio * credit
    if form.name == "cispo":
        held = ratio.clip(low, high)
        return -float((held * logprobs * credit).sum()), -held * credit
    if form.name == "gspo":
        in_ratio = masks["sequence_ratio_mask"] != 0
        ratio = np.full_like(ratio, np.exp((logprobs - sampled)[in_ratio].mean()))
    else:
        assert form.name == "ppo"
    gain, held_gain = ratio * credit, ratio.clip(low, high) * credit
    is_free = (gain < held_gain) | (ratio == ratio.clip(low, high))
    return -float(np.minimum(gain, held_gain).sum()), -np.where(is_free, ratio * credit, 0.0)


def sent(data: Sequence[Datum], form: NamedForm) -> list[tuple[Row, Row, dict[str, Row]]]:
    """What a client sends of each datum: sampler's logprobs, weighted advantages, masks."""
    return [
        (
            d.logprobs.astype(np.float64),
            d.advantages.astype(np.float64) * d.weights.astype(np.float64),
            {name: d.mask.astype(np.float64) for name in form.masks},
        )
        for d in data
    ]


@given(
    st.sampled_from(sorted(LOSSES)),
    st.sampled_from(["token", "sequence", "fixed"]),
    st.integers(0, 10**6),
    st.floats(0.0, 0.9),
    st.floats(0.0, 3.0),
    st.floats(0.0, 1.2),
)
@settings(deadline=None, max_examples=150)
def test_the_services_sum_is_our_loss(
    name: str, aggregation: str, seed: int, clip_low: float, clip_high: float, spread: float
) -> None:
    """Value and gradient, whatever the aggregation: the weights travel in the advantages."""
    clips = {"clip_low": clip_low, "clip_high": clip_high} if name in CLIPPED else {}
    loss = LOSSES[name](**clips)
    form = loss.builtin_form()
    rng = np.random.default_rng(seed)
    data = weigh(random_data(seed=seed, count=5), aggregation, 9)
    now = [d.logprobs + rng.uniform(-spread, spread, len(d.tokens)) * d.mask for d in data]
    leaves = [torch.tensor(row, dtype=torch.float64, requires_grad=True) for row in now]

    value, _ = loss(data, leaves, {})
    value.backward()

    theirs = [
        service(form, row, *columns) for row, columns in zip(now, sent(data, form), strict=True)
    ]
    assert value.item() == pytest.approx(sum(one for one, _ in theirs), rel=1e-6, abs=1e-7)
    for leaf, (_, gradient) in zip(leaves, theirs, strict=True):
        assert leaf.grad is not None
        assert leaf.grad.numpy() == pytest.approx(gradient, rel=1e-6, abs=1e-7)


def test_bounds_are_thresholds_of_the_ratio() -> None:
    """0.2 below and 0.28 above are 0.8 and 1.28 there; each loss has its name there."""
    clips = {"clip_low": 0.25, "clip_high": 0.5}
    wanted = {"clip_low_threshold": 0.75, "clip_high_threshold": 1.5}

    assert LOSSES["grpo"](**clips).builtin_form() == NamedForm(name="ppo", config=wanted)
    assert LOSSES["cispo"](**clips).builtin_form() == NamedForm(name="cispo", config=wanted)
    assert LOSSES["gspo"](**clips).builtin_form() == NamedForm(
        name="gspo", config=wanted, masks=("sequence_ratio_mask",)
    )
    assert LOSSES["reinforce"]().builtin_form() == NamedForm(name="importance_sampling")
    assert LOSSES["sft"]().builtin_form() == NamedForm(name="cross_entropy")


@pytest.mark.parametrize("name", ["grpo", "gspo", "cispo", "reinforce"])
@pytest.mark.parametrize(
    "setting", [{"kl_coef": 0.1}, {"entropy_coef": 0.1}, {"correction": "tis-token"}], ids=str
)
def test_what_the_service_has_not_is_not_named(name: str, setting: dict[str, Any]) -> None:
    """A KL, an entropy bonus or a correction makes it a custom loss; so does a critic."""
    loss = LOSSES[name](**setting)

    assert loss.builtin_form() is None
    assert PpoLoss(None, CONTEXT).builtin_form() is None
