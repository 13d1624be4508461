"""LossContract on losses that compare distributions: a right one passes, planted faults do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pytest

from rlvr import Datum, DistributionRequest, Loss, Needs, TopK
from rlvr.testing import LossContract
from tests.testing.conftest import Broken, Faults

torch = pytest.importorskip("torch", reason="losses are computed with torch, not installed")

breaks = Faults()


def needs_of(k: int) -> Needs:
    """Those of a loss over k tokens a position."""
    return Needs(
        distributions={"teacher": DistributionRequest(k=k)},
        outputs={"hidden", "head"},
        logprobs=False,
    )


class RightDistillation(Loss):
    """Cross-entropy from a teacher's whole distribution; the mean factor of an update is 1."""

    needs = needs_of(0)
    importance_weighted = False
    is_policy_gradient = False
    size = 0

    def meet(self, teachers: Mapping[str, Any]) -> None:
        self.size = teachers["teacher"].tokenizer.vocab_size

    def token_weights(self, data: Sequence[Datum]) -> list[Datum]:
        return [
            attrs.evolve(d, annotations={**d.annotations, "own": np.full(len(d.tokens), 1.0)})
            for d in data
        ]

    def __call__(
        self, data: Sequence[Datum], logprobs: Sequence[Any], outputs: Any
    ) -> tuple[Any, dict[str, float]]:
        hidden, weights = outputs["hidden"], self.head(outputs["head"][0].weights)
        total = torch.zeros((), dtype=torch.float64)
        for states, datum in zip(hidden, data, strict=True):
            told = datum.distributions["teacher"]
            assert isinstance(told, TopK)
            assert told.ids.shape == (int(datum.mask.sum()), self.size)
            log_q = torch.log_softmax(states @ weights.t(), 1)
            log_q = log_q.gather(1, torch.tensor(told.ids).long())
            w = torch.tensor(datum.weights[datum.mask] * datum.annotations["own"][datum.mask])
            total = total - (w[:, None] * torch.tensor(told.logprobs).exp() * log_q).sum()
        total = self.normalised(total, data)
        return total, {"loss/own": total.item()}

    def head(self, weights: Any) -> Any:
        return weights

    def normalised(self, total: Any, data: Sequence[Datum]) -> Any:
        return total


@breaks("is_a_weighted_sum", "micro_batches_add_up")
class NormalisesByBatch(RightDistillation):
    def normalised(self, total: Any, data: Sequence[Datum]) -> Any:
        return total / sum(float(d.weights.sum()) for d in data)


@breaks("uses_every_output_it_asks_for")
class LosesTheHead(RightDistillation):
    def head(self, weights: Any) -> Any:
        return weights.detach()


@breaks("gives_a_finite_scalar_and_plain_metrics")
class ReadsADistributionOfNobody(RightDistillation):
    needs = needs_of(2)


def test_a_right_distillation_holds_every_promise(broken: Broken) -> None:
    """It meets its teachers, gets their answers and sees all data at once, as in a run."""
    assert broken(LossContract, make_loss=RightDistillation) == set()


@pytest.mark.parametrize(("loss", "promise"), breaks.cases)
def test_faults_are_found(loss: type, promise: str, broken: Broken) -> None:
    """Each planted fault fails the test whose promise it breaks."""
    assert promise in broken(LossContract, promise, make_loss=loss)
