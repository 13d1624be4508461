"""What this distribution offers to rlvr. Imports nothing heavy: the parts are named as text."""

from __future__ import annotations

from collections.abc import Iterable

from rlvr import RewardSpec, TaskSpec, hookimpl

RLVR_API = 1  # what it was built for: an rlvr of another plugin API names the mismatch


@hookimpl
def rlvr_tasks() -> Iterable[TaskSpec]:
    """The puzzles."""
    yield TaskSpec(
        name="countdown",  # --plugin countdown
        target="rlvr_countdown.task:CountdownTask",  # imported when it is chosen
        reward="countdown",  # unless --reward names another
        summary="Reach the target with each number once",
    )


@hookimpl
def rlvr_rewards() -> Iterable[RewardSpec]:
    """The verifier."""
    yield RewardSpec(
        name="countdown",
        target="rlvr_countdown.reward:CountdownReward",
        config="rlvr_countdown.reward:CountdownOptions",  # countdown.format_reward=0.2
        summary="Evaluates the answer exactly; no model judges it",
    )
