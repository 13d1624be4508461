"""The losses that a backend is tried with: the plainest one, and one that asks for more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlvr.types import Datum


class LikelihoodLoss:
    """The plainest loss: minus the weighted logprob of the policy's tokens."""

    needs: frozenset[str] = frozenset()
    importance_weighted = False

    def __call__(
        self, data: Sequence[Datum], logprobs: Sequence[Any]
    ) -> tuple[Any, dict[str, float]]:
        """Loss, and `weight/sum` and `weight/max` to see how a backend combines metrics."""
        loss: Any = 0.0
        for datum, lp in zip(data, logprobs, strict=True):
            places = np.flatnonzero(datum.mask).tolist()
            loss = loss - (lp[places] * lp.new_tensor(datum.weights[places].tolist())).sum()
        weights = np.concatenate([datum.weights for datum in data])
        return loss, {"weight/sum": float(weights.sum()), "weight/max": float(weights.max())}


class OutputLoss:
    """A loss that asks the forward pass for one more thing, and looks at what it gets."""

    needs: frozenset[str] = frozenset()
    importance_weighted = False

    def __init__(self, name: str) -> None:
        self.outputs = frozenset({name})
        self.seen = 0

    def __call__(
        self,
        data: Sequence[Datum],
        logprobs: Sequence[Any],
        outputs: Mapping[str, Sequence[Any]] | None = None,
    ) -> tuple[Any, dict[str, float]]:
        """The weighted sum of the output's squares, beside that of `LikelihoodLoss`."""
        loss, metrics = LikelihoodLoss()(data, logprobs)
        for name in self.outputs if outputs is not None else ():
            for datum, lp, values in zip(data, logprobs, (outputs or {})[name], strict=True):
                places = np.flatnonzero(datum.mask).tolist()
                assert values.shape == lp.shape
                assert values.requires_grad
                assert bool(values[places].isfinite().all())
                loss = loss + (values[places] ** 2).sum() / 100
                self.seen += 1
        return loss, metrics
