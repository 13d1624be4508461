"""The plainest credit and the plainest policy gradient: what a line needs besides the toy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlvr.parts import Advantage, Loss
from rlvr.types import Datum, ScoredGroup


class CentredAdvantage(Advantage):
    """Reward minus the group's mean."""

    def __call__(self, groups: Sequence[ScoredGroup]) -> list[list[float]]:
        """Shape (P, G), ragged; unit: reward."""
        return [
            [r.value - sum(x.value for x in g.rewards) / len(g.rewards) for r in g.rewards]
            for g in groups
        ]


class ReinforceLoss(Loss):
    """Weighted sum of -advantage * logprob; no ratio, no metrics."""

    importance_weighted = False

    def __call__(
        self,
        data: Sequence[Datum],
        logprobs: Sequence[Any],
        outputs: Mapping[str, Sequence[Any]],
    ) -> tuple[Any, dict[str, float]]:
        """The loss, a scalar tensor."""
        total = sum(
            -(lp.new_tensor((d.weights * d.advantages).tolist()) * lp).sum()
            for d, lp in zip(data, logprobs, strict=True)
        )
        return total, {}
