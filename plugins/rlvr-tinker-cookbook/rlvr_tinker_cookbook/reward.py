"""The reward of cookbook environments: what the environment said while it was played."""

from __future__ import annotations

from rlvr import BuildContext, Outcome, Problem, Reward, RewardFn, Trajectory, Unscorable
from rlvr_tinker_cookbook.config import NOTE, CookbookConfig


class CookbookReward(RewardFn):
    """
    Reads the verdict from the trajectory's notes.

    An answer is right where the metric `cookbook.solved_metric` is 1, or, for an environment
    without that metric, from the reward `cookbook.solved_at` on.
    """

    def __init__(self, config: CookbookConfig, context: BuildContext) -> None:
        self._config = config

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        """The environment's reward; none for an answer that no environment has seen."""
        said = trajectory.notes.get(NOTE)
        if said is None:
            return Unscorable(reason="the answer was not given to an environment of the cookbook")
        value, metrics = float(said["reward"]), dict(said["metrics"])
        solved = metrics.get(self._config.solved_metric)
        is_right = value >= self._config.solved_at if solved is None else solved >= 1.0
        return Reward(value=value, score01=float(is_right), components=metrics)
