"""Rewards as the advantages see them: lengths and cut answers are paid for here."""

from __future__ import annotations

from rlvr import BuildContext, ConfigError, Reward, ScoredGroup, TaskError, Trajectory
from rlvr_algos.shaping.config import ShapingConfig


class Shaping:
    """
    Verdicts of a group as numbers (G,), less what its answers' lengths cost.

    Taken off `Reward.value`, each where its option is set:

    - `length_penalty` for each 1000 tokens that the policy wrote;
    - `overlong_penalty` times the part of the overlong buffer that the longest turn has used: 0
      at its begin, 1 at `sampler.max_tokens` (soft overlong punishment, DAPO,
      arXiv:2503.14476, eq. 13). The buffer is a share of `sampler.max_tokens`, in whole tokens,
      rounded down: a budget too small to have one has none;
    - `truncated_penalty` from an answer that was cut (`finish` is "length") with
      `truncated=penalise`.

    Raises:
        ConfigError: Settings that contradict each other.
    """

    def __init__(self, config: ShapingConfig, context: BuildContext) -> None:
        self._config = config
        self._limit = context.sampling.max_tokens if context.sampling is not None else 0
        self._buffer = int(config.overlong_buffer * self._limit)
        self._check(context)

    def rewards(self, group: ScoredGroup) -> list[float]:
        """
        Shaped rewards (G,) of a group whose trajectories all have one.

        Raises:
            TaskError: A trajectory has no reward.
        """
        pairs = zip(group.trajectories, verdicts(group), strict=True)
        return [reward.value - self._cost(trajectory) for trajectory, reward in pairs]

    def is_masked(self, trajectory: Trajectory) -> bool:
        """Whether an answer stays in the baseline but is not learned from."""
        return self._config.truncated == "mask" and trajectory.finish == "length"

    def _cost(self, trajectory: Trajectory) -> float:
        config, cost = self._config, 0.0
        turns = [len(s.tokens) for s in trajectory.segments if s.author == "policy"]
        if config.length_penalty:
            cost += config.length_penalty * sum(turns) / 1000
        if self._buffer:
            used = max(turns, default=0) - (self._limit - self._buffer)
            cost += config.overlong_penalty * min(max(used / self._buffer, 0.0), 1.0)
        if config.truncated == "penalise" and trajectory.finish == "length":
            cost += config.truncated_penalty
        return cost

    def _check(self, context: BuildContext) -> None:
        """Refuse settings that cancel each other or do nothing."""
        config = self._config
        if config.overlong_buffer > 0 and context.sampling is None:
            raise ConfigError(
                f"advantage.overlong_buffer={config.overlong_buffer:g} was asked for.",
                "found: nothing is sampled here, so answers have no token limit to come near",
                "set advantage.overlong_buffer=0, or sample from the policy",
            )
        if config.truncated == "penalise" and config.truncated_penalty == 0:
            raise ConfigError(
                "advantage.truncated=penalise was asked for.",
                "found: advantage.truncated_penalty=0, so a cut answer would cost nothing",
                "set advantage.truncated_penalty=0.5, or advantage.truncated=keep",
            )
        if config.truncated != "penalise" and config.truncated_penalty > 0:
            raise ConfigError(
                f"advantage.truncated_penalty={config.truncated_penalty:g} was asked for.",
                f"found: advantage.truncated={config.truncated}, which takes nothing off",
                "set advantage.truncated=penalise, or leave the penalty out",
            )


def verdicts(group: ScoredGroup) -> list[Reward]:
    """
    The rewards (G,) of a group.

    Raises:
        TaskError: A trajectory has none; a failure never enters a baseline as 0.
    """
    found = list(group.rewards)
    if len(found) != len(group.outcomes):
        raise TaskError(
            f"an advantage was asked about problem {group.problem.id!r}.",
            f"{len(group.outcomes) - len(found)} of its {len(group.outcomes)} trajectories "
            "have no reward.",
            "Drop them first: ScoredGroup.scored_only().",
        )
    return found
