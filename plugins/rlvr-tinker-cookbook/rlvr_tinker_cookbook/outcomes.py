"""Verdicts as the cookbook's rewards.

A verdict that does not exist is never reward 0 (`rlvr.types.Unscorable`, `Failed`). The cookbook
has no word for that, but its advantage is the reward minus the group's mean: an answer that gets
the mean of the others changes neither that mean nor the gradient, as if it were left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from tinker_cookbook.rl.types import Metrics

from rlvr import Failed, Outcome, Reward, Unscorable


def step_reward(outcome: Outcome) -> float:
    """What the last step of an episode earns; 0 where there is no verdict (`missing_rewards`)."""
    return outcome.value if isinstance(outcome, Reward) else 0.0


def step_metrics(outcome: Outcome) -> Metrics:
    """Named numbers of a verdict, averaged by the cookbook's log."""
    metrics: Metrics = {
        "unscorable": float(isinstance(outcome, Unscorable)),
        "failed": float(isinstance(outcome, Failed)),
    }
    if isinstance(outcome, Reward):
        metrics["solved"] = outcome.score01
        metrics.update({f"component/{k}": float(v) for k, v in outcome.components.items()})
    return metrics


def missing_rewards(outcomes: Sequence[Outcome | None]) -> list[float]:
    """What to add to each reward of a group: a missing verdict gets the mean of the others."""
    values = [o.value for o in outcomes if isinstance(o, Reward)]
    if not values:
        return [0.0] * len(outcomes)
    mean = values[0] if len(set(values)) == 1 else fmean(values)
    return [0.0 if isinstance(o, Reward) else mean for o in outcomes]
