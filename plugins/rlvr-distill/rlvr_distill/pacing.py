"""Weights of span types that follow the training: running means, and how far the run has come."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rlvr_distill.config import DistillConfig
from rlvr_distill.spans import ACTION, REASONING, TYPES

STEP = "step"
_BOUNDS = (0.25, 4.0)
"""Of an adaptive weight, as a multiple of the plain one."""


def type_weights(
    config: DistillConfig, memory: Mapping[str, float], steps: int
) -> dict[int, float]:
    """
    Weight of each span type at the step that the memory says.

    reasoning_heavy and action_heavy: 2 to 1. curriculum: reasoning 0.5 to 2, action 2 to 1 while
    the run goes on. adaptive: (running mean / mean of both)^power, within 1/4 and 4. All times the
    weights of the options.
    """
    weights = {REASONING: config.reasoning_weight, ACTION: config.action_weight}
    way = min(memory.get(STEP, 0.0) / steps, 1.0) if steps > 0 else 0.0
    factors = {
        "reasoning_heavy": {REASONING: 2.0, ACTION: 1.0},
        "action_heavy": {REASONING: 1.0, ACTION: 2.0},
        "curriculum": {REASONING: 0.5 + 1.5 * way, ACTION: 2.0 - way},
        "adaptive": _adaptive(config, memory),
    }.get(config.weighting, {})
    return {kind: weight * factors.get(kind, 1.0) for kind, weight in weights.items()}


def _adaptive(config: DistillConfig, memory: Mapping[str, float]) -> dict[int, float]:
    """Factors once both means are known; {} before."""
    means = {k: memory.get(f"distill/{name}", -math.inf) for k, name in TYPES.items()}
    middle = sum(means.values()) / len(means)
    if middle <= 0:
        return {}
    low, high = _BOUNDS
    return {
        k: min(max((max(mean, 0.0) / middle) ** config.adaptive_power, low), high)
        for k, mean in means.items()
    }


def miss_scales(config: DistillConfig, memory: Mapping[str, float]) -> dict[int, float]:
    """
    What difficulty's token weights (1, or 2 where the likeliest tokens differ) are divided by.

    Their running mean by type, since their mean now is known only after the student was asked: so
    they have mean 1 over time, and micro-batches add up. 1 at the first step.
    """
    is_on = config.weighting == "difficulty"
    return {
        kind: 1 / memory.get(f"difficulty/{name}", 1.0) if is_on else 1.0
        for kind, name in TYPES.items()
    }


def remembered(
    config: DistillConfig, memory: Mapping[str, float], metrics: Mapping[str, float]
) -> dict[str, float]:
    """The memory after a step with its metrics: one step more, and the running means moved."""
    found = dict(memory)
    found[STEP] = found.get(STEP, 0.0) + 1.0
    names = {"adaptive": "distill", "difficulty": "difficulty"}.get(config.weighting)
    for kind in TYPES.values() if names else ():
        key = f"{names}/{kind}"
        if key in metrics and metrics.get(f"share/{kind}", 0.0) > 0:
            before = found.get(key, metrics[key])
            found[key] = config.ema * before + (1 - config.ema) * metrics[key]
    return found
