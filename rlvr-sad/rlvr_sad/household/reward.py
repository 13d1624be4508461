"""The reward of the house: 1 when the goal holds in the house itself, else 0."""

from __future__ import annotations

from rlvr import BuildContext, Problem, Reward, RewardFn, Trajectory
from rlvr_sad.config import HouseConfig
from rlvr_sad.household.commands import read_turn
from rlvr_sad.household.episode import house_of
from rlvr_sad.household.state import State


class HouseReward(RewardFn):
    """
    Does every turn's command again in a fresh house, and looks at the house.

    Nothing that the policy says about itself counts, and no observation that stands in its text:
    only what its commands do, one a turn, within `house.steps` turns.
    """

    def __init__(self, config: HouseConfig, context: BuildContext) -> None:
        del context
        self._steps = config.steps

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
        """1 for a goal that holds after some turn; an episode ends there."""
        state, turns = State(house_of(problem)), 0
        for text in trajectory.completions[: self._steps]:
            if state.is_done:
                break
            state.do(read_turn(text).command)
            turns += 1
        value = float(state.is_done)
        return Reward(
            value=value,
            score01=value,
            components={"goal": value},
            tests_passed=int(state.is_done),
            tests_total=1,
            evidence={"turns": turns, "goal": str(state.house.goal)},
        )
