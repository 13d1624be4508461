"""The problems of a step where two tasks are asked: a share of each, in epochs of its own."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from rlvr.types import Problem
from rlvr_chess.records import EnvironmentStep


def mixed(
    problems: Sequence[Problem], count: int, *, mix: float, seed: int, step: int
) -> list[Problem]:
    """
    `count` problems of a step (0-based), a share `mix` of them policy problems.

    Shares are exact over steps: what one step cannot give for rounding, the next one gives. Where
    only one task is there, all are of it.
    """
    environment = [p for p in problems if isinstance(p.payload, EnvironmentStep)]
    policy = [p for p in problems if not isinstance(p.payload, EnvironmentStep)]
    if not policy or not environment:
        mix = float(bool(policy))
    before, after = (_rounded(steps * count * mix) for steps in (step, step + 1))
    chosen = _stretch(policy, before, after - before, f"policy {seed}")
    rest = count - (after - before)
    return chosen + _stretch(environment, step * count - before, rest, f"environment {seed}")


def _rounded(number: float) -> int:
    return math.floor(number + 0.5)


def _stretch(problems: Sequence[Problem], start: int, count: int, salt: str) -> list[Problem]:
    """Places `start` to `start + count` of an endless line of seeded permutations."""
    chosen: list[Problem] = []
    while len(chosen) < count:
        epoch, offset = divmod(start + len(chosen), len(problems))
        order = list(range(len(problems)))
        random.Random(f"{salt} {epoch}").shuffle(order)
        chosen += [problems[i] for i in order[offset : offset + count - len(chosen)]]
    return chosen
