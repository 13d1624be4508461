"""Advantage `group`: credit relative to the other trajectories of the same problem."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from rlvr.errors import TaskError, explain
from rlvr.parts import BuildContext
from rlvr.types import Reward, ScoredGroup
from rlvr_algos.config import GroupAdvantageConfig


class GroupAdvantage:
    """
    Advantage of each trajectory: its reward minus its group's mean, over the group's deviation.

    `A_i = (r_i - mean(r)) / (std(r) + epsilon)` (GRPO, arXiv:2402.03300, outcome supervision).
    The deviation is the sample's (divisor G - 1), as in the peers. `normalise_std=False` leaves
    it out, because it up-weights groups that are almost always solved or failed (Dr. GRPO,
    arXiv:2503.20783). A group of equal rewards yields exact zeros.
    """

    def __init__(self, config: GroupAdvantageConfig | None, context: BuildContext) -> None:
        self._config = config or GroupAdvantageConfig()

    def __call__(self, groups: Sequence[ScoredGroup]) -> list[list[float]]:
        """
        Advantages of all groups; a group never looks at another one.

        Args:
            groups: P scored groups; sizes may differ after failed verifications were dropped.

        Returns:
            Shape (P, G), ragged in G; unit: reward, or none when normalised.

        Raises:
            TaskError: A group holds fewer than two trajectories, or one without a reward.
        """
        return [self._advantages(_values(group)) for group in groups]

    def _advantages(self, rewards_G: Sequence[float]) -> list[float]:
        if min(rewards_G) == max(rewards_G):
            return [0.0] * len(rewards_G)
        mean = math.fsum(rewards_G) / len(rewards_G)
        centred_G = [reward - mean for reward in rewards_G]
        if not self._config.normalise_std:
            return centred_G
        scale = statistics.stdev(rewards_G) + self._config.epsilon
        return [value / scale for value in centred_G]


def _values(group: ScoredGroup) -> list[float]:
    values = [outcome.value for outcome in group.outcomes if isinstance(outcome, Reward)]
    if len(values) != len(group.outcomes):
        raise TaskError(
            explain(
                f"advantage 'group' was asked about problem {group.problem.id!r}.",
                f"{len(group.outcomes) - len(values)} of its {len(group.outcomes)} trajectories "
                "have no reward.",
                "Drop them first: ScoredGroup.scored_only().",
            )
        )
    if len(values) < 2:
        raise TaskError(
            explain(
                f"advantage 'group' was asked about problem {group.problem.id!r}.",
                f"Its group holds {len(values)} trajectory; relative credit needs two.",
                "Set sampler.group_size to 2 or more, and drop groups that shrank below it.",
            )
        )
    return values
