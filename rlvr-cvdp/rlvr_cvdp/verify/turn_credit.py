"""Reward arithmetic of several turns: the discount, and what each turn's state was worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from rlvr import Reward, Trajectory
from rlvr_cvdp.config import CvdpConfig


def turns_of(trajectory: Trajectory) -> int:
    """Turns that the policy took; 1 for an answer that was given as files."""
    return max(1, len(trajectory.completions))


def with_turns(reward: Reward, trajectory: Trajectory, config: CvdpConfig) -> Reward:
    """
    The reward of the last state with the credit of its turns; unchanged for a single turn.

    `value` is multiplied by discount ** (turns - 1); `score01` stays: a right answer is right
    however long it took. `turn_K` is the weight of the stage that the tools saw after turn K, for
    the last turn the reward before the discount.
    """
    noted = _noted(trajectory)
    if not noted:
        return reward
    turns = turns_of(trajectory)
    factor = config.discount ** (turns - 1)
    weights = {
        "format": config.format_weight,
        "syntax": config.syntax_weight,
        "compilation": config.compile_weight if config.compilation else config.syntax_weight,
        "tests": config.tests_weight,
    }
    worth = {
        f"turn_{k}": weights.get(str(turn.get("stage", "")), 0.0)
        for k, turn in enumerate(noted[: turns - 1], start=1)
    }
    return evolve(
        reward,
        value=reward.value * factor,
        components={**reward.components, **worth, f"turn_{turns}": reward.value},
        evidence={
            **reward.evidence,
            "turns": turns,
            "discount": factor,
            "turn_notes": noted,
            "ended": trajectory.notes.get("ended", ""),
        },
    )


def turns_key(trajectory: Trajectory, config: CvdpConfig) -> list[Any]:
    """What of a trajectory's turns decides a reward; for a single turn nothing."""
    noted = _noted(trajectory)
    ended = trajectory.notes.get("ended", "")
    return [turns_of(trajectory), config.discount, noted, ended] if noted else []


def _noted(trajectory: Trajectory) -> list[Mapping[str, Any]]:
    turns = trajectory.notes.get("turns", ())
    return [dict(turn) for turn in turns if isinstance(turn, Mapping)]
