"""One update: what its digest says, and a loss that is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest

from rlvr import Datum, Needs
from rlvr.testing.backend_losses import LikelihoodLoss
from rlvr_tinker.training.losses import LocalLoss
from rlvr_tinker.training.step import digest_of

from .conftest import make_data

SETTINGS = {"learning_rate": 0.1}


@attrs.frozen
class Config:
    """Options of a loss."""

    kl_coef: float = 0.1


class Loss(LikelihoodLoss):
    """A loss with options."""

    def __init__(self, config: Config) -> None:
        self._config = config


def digest(
    data: Sequence[Datum] | None = None, loss: Any = None, settings: Any = None, before: str = ""
) -> str:
    loss = loss or Loss(Config())
    return digest_of(before, data or make_data(1), loss, None, settings or SETTINGS)


def test_equal_updates_have_equal_digests() -> None:
    """Whoever makes them: nothing of it depends on the process."""
    assert digest() == digest(make_data(1), Loss(Config()), dict(SETTINGS))
    asking = Loss(Config())
    asking.needs = Needs(annotations={"policy", "reference"})  # sets have no order of their own
    assert digest(loss=asking) == digest()


def test_whatever_makes_other_weights_makes_another_digest() -> None:
    """What was before, the data with their annotations, the loss's options, the optimiser's."""
    data = list(make_data(1))
    count = len(data[0].tokens)
    annotated = [attrs.evolve(data[0], annotations={"reference": np.zeros(count)}), *data[1:]]
    other = [
        attrs.evolve(data[0], annotations={"reference": np.ones(count)}),
        *data[1:],
    ]

    found = [
        digest(),
        digest(before="x"),
        digest(data[::-1]),
        digest(annotated),
        digest(other),
        digest(loss=Loss(Config(kl_coef=0.2))),
        digest(loss=LikelihoodLoss()),
        digest(settings={"learning_rate": 0.2}),
        digest(settings={"learning_rate": 0.1, "grad_clip_norm": 1.0}),
    ]

    assert len(set(found)) == len(found)


@pytest.mark.parametrize("value", [-np.inf, np.nan, -3e38])
def test_a_loss_that_fails_gives_a_gradient_of_zero(value: float) -> None:
    """Also where the service's own logprobs are no numbers: the SDK sends what it gets back."""
    import torch

    data = make_data(1)[:1]
    count = len(data[0].tokens) - 1
    logprobs = torch.full((count,), value, requires_grad=True)

    class Failing(LikelihoodLoss):
        def __call__(self, data: Any, logprobs: Any, outputs: Any) -> Any:
            raise ZeroDivisionError("a bug of the loss")

    local = LocalLoss(Failing(), data)
    loss, _ = local(None, [logprobs])
    loss.backward()

    assert isinstance(local.error, ZeroDivisionError)
    assert float(loss.detach()) == 0.0
    assert logprobs.grad is not None
    assert not logprobs.grad.any()
