"""Advantages `best` and `one`: imitate the best answer of each group, or every answer."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr import Advantage, BuildContext, ConfigError, ScoredGroup
from rlvr_algos.shaping.config import BestConfig
from rlvr_algos.shaping.overlong import Shaping, verdicts


class BestAdvantage(Advantage):
    """
    1 for the best trajectory of a group, None (not learned) for all the others.

    The best is the one of the largest shaped reward among those whose `score01` reaches
    `threshold`; of equals the first. A group without one teaches nothing. With the loss `sft` this
    is rejection sampling, best of n (RAFT, arXiv:2304.06767).

    Attributes:
        refill_limit: How many further groups a step may draw in place of those without a right
            answer.

    Raises:
        ConfigError: Groups of one, of which every answer is the best.
    """

    config_class = BestConfig
    is_group_relative = False
    breaks_ties = True

    def __init__(self, config: BestConfig | None, context: BuildContext) -> None:
        self._config = config or BestConfig()
        self._shaping = Shaping(self._config, context)
        self.refill_limit = self._config.refills
        if context.sampling is not None and context.sampling.group_size == 1:
            raise ConfigError(
                "advantage 'best' was asked for with groups of one trajectory.",
                "found: sampler.group_size=1, which leaves nothing to choose from",
                "set sampler.group_size=8, or use --algo sft for the references",
            )

    def __call__(self, groups: Sequence[ScoredGroup]) -> list[list[float | None]]:
        """
        Shape (P, G), ragged in G: a 1 at the best of each group, None elsewhere.

        Raises:
            TaskError: A trajectory has no reward.
        """
        return [
            [1.0 if place == best else None for place in range(len(group.trajectories))]
            for group in groups
            for best in [self._best(group)]
        ]

    def keep(self, group: ScoredGroup) -> bool:
        """Whether the group has an answer to learn from."""
        return self._best(group) is not None

    def _best(self, group: ScoredGroup) -> int | None:
        scores = [reward.score01 for reward in verdicts(group)]
        rewards = self._shaping.rewards(group)
        good = [
            place
            for place, trajectory in enumerate(group.trajectories)
            if scores[place] >= self._config.threshold and not self._shaping.is_masked(trajectory)
        ]
        return max(good, key=rewards.__getitem__, default=None)


class OneAdvantage(Advantage):
    """
    1.0 for every trajectory, whatever its reward.

    Turns the loss `sft` into plain imitation of what the sampler yields (the references).
    """

    is_group_relative = False

    def __call__(self, groups: Sequence[ScoredGroup]) -> list[list[float]]:
        """Shape (P, G), ragged in G: all ones."""
        return [[1.0] * len(group.trajectories) for group in groups]
