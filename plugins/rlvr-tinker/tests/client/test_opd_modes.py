"""Algorithm opd on a service that gives logprobs only: one mode by its name, the others refused."""

from __future__ import annotations

import pytest

from rlvr.abilities import NamedForm
from rlvr.errors import BackendError
from rlvr.parts import BuildContext
from rlvr_tinker.losses import form_of

opd = pytest.importorskip("rlvr_algos.opd_loss", reason="rlvr-algos or torch is not installed")


def loss(mode: str) -> object:
    """The loss in a mode."""
    return opd.OpdLoss(opd.OpdLossConfig(mode=mode), BuildContext())


def test_the_policy_gradient_is_the_services_own() -> None:
    """Computed there, as `reinforce` was."""
    assert form_of(loss("pg"), is_custom=False) == NamedForm(name="importance_sampling")


@pytest.mark.parametrize("mode", ["supervised", "both"])
def test_a_divergence_is_refused(mode: str) -> None:
    """It needs states that the service does not give; what to set is said."""
    with pytest.raises(BackendError, match=r"gives logprobs only(.|\n)*opd\.mode=pg"):
        form_of(loss(mode), is_custom=False)
