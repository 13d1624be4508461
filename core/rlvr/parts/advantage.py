"""An advantage: credit of each trajectory."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import ClassVar

from rlvr.parts.needs import LearningPart
from rlvr.types import Datum, ScoredGroup


class Advantage(LearningPart):
    """
    Credit of each trajectory.

    Attributes:
        refill_limit: Most further groups of a step in place of those that `keep` drops, as a
            multiple of `train.problems` (dynamic sampling, DAPO).
        is_group_relative: Set it to False where a group's mean is no baseline (constants, values).
        is_per_group: Set it to False where groups are normalised together.
        breaks_ties: Set it to True where one of equally good answers is chosen.

    The last three say which promises of `rlvr.testing.AdvantageContract` apply; runs ignore them.
    """

    kind: ClassVar[str] = "advantage"

    refill_limit: int = 0
    is_group_relative: bool = True
    is_per_group: bool = True
    breaks_ties: bool = False

    @abc.abstractmethod
    def __call__(self, groups: Sequence[ScoredGroup]) -> Sequence[Sequence[float | None]]:
        """
        Shape (P, G), ragged, aligned with the groups' trajectories (all of them scored).

        None leaves a trajectory out of the training data; 0 trains on it without a direction.
        """

    def keep(self, group: ScoredGroup) -> bool:
        """Whether to train on the group (all its trajectories have a reward)."""
        return True

    def per_token(self, data: Sequence[Datum]) -> list[Datum]:
        """
        The data of one step with the `advantages` (T,) to train on; order and number are kept.

        They come with the annotations that were asked for; more may be added for the loss
        (`Needs.provides`). Each datum's advantages hold the trajectory's, on every policy token.
        """
        return list(data)

    def metrics(self, data: Sequence[Datum]) -> Mapping[str, float]:
        """Metrics by path, of the data as they are trained on; never asked of an empty step."""
        return {}
