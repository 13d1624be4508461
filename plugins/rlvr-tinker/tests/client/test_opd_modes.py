"""Algorithm opd on a service that gives logprobs only: one mode by its name, the others refused."""

from __future__ import annotations

import pytest

from rlvr import BackendError, BuildContext, NamedForm
from rlvr_tinker.training.losses import form_of

opd = pytest.importorskip("rlvr_distill.opd.loss", reason="rlvr-distill is not installed")
reinforce = pytest.importorskip("rlvr_algos.losses.grpo", reason="rlvr-algos is not installed")


def loss(mode: str) -> object:
    """The loss in a mode."""
    inner = reinforce.ReinforceLoss(None, BuildContext())
    return opd.OpdLoss(opd.OpdLossConfig(mode=mode), BuildContext(inner=inner))


def test_the_policy_gradient_is_the_services_own() -> None:
    """Computed there, as `reinforce` was."""
    assert form_of(loss("pg"), is_custom=False) == NamedForm(name="importance_sampling")


@pytest.mark.parametrize("mode", ["supervised", "both"])
def test_a_divergence_is_refused(mode: str) -> None:
    """It needs states that the service does not give; what to set is said."""
    with pytest.raises(BackendError, match=r"gives logprobs only(.|\n)*opd\.mode=pg"):
        form_of(loss(mode), is_custom=False)
