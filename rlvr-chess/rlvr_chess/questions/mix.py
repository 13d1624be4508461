"""The problems of a step: a share of each task, and each kind of move as often as any other.

Positions offer quiet moves far more often than castling or mates. Asked as they come, the rare
kinds are hardly asked, and what a model knew of them is lost while it trains.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from rlvr import Curriculum, Problem
from rlvr_chess.questions.records import EnvironmentStep


@frozen
class MixedTasks(Curriculum):
    """Policy problems in epochs, a share `mix` of all; environment problems kind by kind."""

    mix: float

    def choose(
        self, problems: Sequence[Problem], count: int, *, seed: int, step: int, **now: Any
    ) -> list[Problem]:
        """
        `count` problems of a step (0-based), a share `mix` of them policy problems.

        Shares are exact over steps: what one step cannot give for rounding, the next one gives.
        Where only one task is there, all are of it. Policy problems come in epochs. Environment
        problems come kind by kind (label "category"): every kind once, in random order, then every
        kind again; those of one kind come in epochs of its own.
        """
        mix = self.mix
        environment = [p for p in problems if isinstance(p.payload, EnvironmentStep)]
        policy = [p for p in problems if not isinstance(p.payload, EnvironmentStep)]
        if not policy or not environment:
            mix = float(bool(policy))
        before, after = (math.floor(steps * count * mix + 0.5) for steps in (step, step + 1))
        chosen = _stretch(policy, before, after - before, f"policy {seed}")
        start = step * count - before
        return chosen + _by_kind(environment, start, count - len(chosen), f"environment {seed}")


def _by_kind(problems: Sequence[Problem], start: int, count: int, salt: str) -> list[Problem]:
    """The same places of an endless line in which every kind stands once before any does again."""
    kinds: dict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        kinds[problem.labels.get("category", "")].append(problem)
    chosen: list[Problem] = []
    for place in range(start, start + count):
        turn, offset = divmod(place, len(kinds))
        order = random.Random(f"{salt} kinds {turn}").sample(sorted(kinds), len(kinds))
        kind = order[offset]
        chosen += _stretch(kinds[kind], turn, 1, f"{salt} {kind}")
    return chosen


def _stretch(problems: Sequence[Problem], start: int, count: int, salt: str) -> list[Problem]:
    """Places `start` to `start + count` of an endless line of seeded permutations."""
    chosen: list[Problem] = []
    while len(chosen) < count:
        epoch, offset = divmod(start + len(chosen), len(problems))
        order = list(range(len(problems)))
        random.Random(f"{salt} {epoch}").shuffle(order)
        chosen += [problems[i] for i in order[offset : offset + count - len(chosen)]]
    return chosen
