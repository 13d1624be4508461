"""Functions that choose the problems of a step, for curricula (`rlvr.parts.Curriculum`).

They are pure functions of (seed, step, history), so a resumed run goes on exactly. Each gives
`count` problems; if there are fewer, some come twice. `weights` map a problem id to a number above
0 (1 where none is given): how often the problem is taken compared with others. A weight counts as
at least `LEAST` of the largest, so every problem is met.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from itertools import cycle, islice

from rlvr.seeds import seed_of
from rlvr.types import PassRate, Problem

__all__ = ["by_pass_rate", "by_stages", "by_weight", "epochs"]

LEAST = 0.05
"""Least weight of a problem, as a share of the largest one."""

REVISIT = 0.1
"""How pressing a problem is whose pass rate is as far from the target as can be."""


def epochs(problems: Sequence[Problem], count: int, *, seed: int, step: int) -> list[Problem]:
    """
    The problems of a step (0-based): epochs of seeded permutations, read one after another.

    Every problem is met once before any is met twice; a step may span two epochs.
    """
    return _in_epochs(problems, step * count, count, seed)


def by_weight(
    problems: Sequence[Problem],
    count: int,
    *,
    weights: Mapping[str, float],
    seed: int,
    step: int,
) -> list[Problem]:
    """
    Each problem as often as its weight says, spread evenly, in random order.

    A problem of weight w stands once, at a random place, in each stretch of length 1/w of an
    endless line; steps read along the line. Shares are exact up to one meeting, and equal weights
    give epochs.
    """
    return _in_line(problems, step * count, count, weights, seed)


def by_stages(
    problems: Sequence[Problem],
    count: int,
    *,
    stages: Mapping[str, int],
    ramp_steps: int,
    seed: int,
    step: int,
    weights: Mapping[str, float] | None = None,
) -> list[Problem]:
    """
    The first stage at first, then a growing share of the next ones; from `ramp_steps` on, all.

    With S stages, stage s (0-based) opens at `s - 1` of the `S - 1` equal parts of the ramp and
    is open in full one part later; an open stage's share of a step is proportional to its size.

    Args:
        problems: What to choose from.
        count: Problems of a step.
        stages: Problem id to its place in the order; the numbers need not be consecutive.
        ramp_steps: Steps until all stages are open in full.
        seed: Of the run.
        step: 0-based.
        weights: Within a stage, and later among all.
    """
    if step >= ramp_steps:
        position = (step - ramp_steps) * count
        return _in_line(problems, position, count, weights, seed_of(seed, "all stages"))
    names = sorted({stages[p.id] for p in problems})
    rooms = [[p for p in problems if stages[p.id] == name] for name in names]
    before, now = _slots([len(room) for room in rooms], count, step, ramp_steps)
    return [
        problem
        for s, room in enumerate(rooms)
        if now[s]
        for problem in _in_line(room, before[s], now[s], weights, seed_of(seed, "stage", s))
    ]


def by_pass_rate(
    problems: Sequence[Problem],
    count: int,
    *,
    history: Mapping[str, PassRate],
    seed: int,
    step: int,
    target: float = 0.5,
    explore: float = 0.25,
    weights: Mapping[str, float] | None = None,
) -> list[Problem]:
    """
    Problems whose pass rate is near the target, unseen ones, and in time all others again.

    A share `explore` of the step goes to problems never met, while there are any. The rest are the
    most pressing of those met: pressing is `REVISIT + 1 - distance from the target` times the
    steps since the last meeting. So a solved problem steps back but returns, and comes often
    again when it was forgotten; one that was too hard is tried again as the policy grows.
    """
    unseen = _unique(_in_epochs(problems, step * count, 2 * len(problems), seed))
    unseen = [p for p in unseen if p.id not in history]
    met = [p for p in problems if p.id in history]
    rates = _rates(problems, weights)

    def pressing(problem: Problem) -> float:
        record = history[problem.id]
        distance = abs(record.rate - target) / max(target, 1.0 - target)
        return rates[problem.id] * (REVISIT + 1.0 - distance) * (step - record.step)

    met.sort(key=lambda p: (-pressing(p), seed_of(seed, "tie", step, p.id)))
    new = min(len(unseen), max(math.ceil(explore * count), count - len(met)))
    return list(islice(cycle([*unseen[:new], *met[: count - new]]), count))


def _in_epochs(problems: Sequence[Problem], position: int, count: int, seed: int) -> list[Problem]:
    total = len(problems)
    chosen: list[Problem] = []
    while len(chosen) < count:
        epoch, offset = divmod(position, total)
        order = list(range(total))
        random.Random(seed_of(seed, "epoch", epoch)).shuffle(order)
        take = order[offset : offset + count - len(chosen)]
        chosen += [problems[i] for i in take]
        position += len(take)
    return chosen


def _in_line(
    problems: Sequence[Problem],
    position: int,
    count: int,
    weights: Mapping[str, float] | None,
    seed: int,
) -> list[Problem]:
    """Places `position` to `position + count` of the endless line that `by_weight` describes."""
    if weights is None:
        return _in_epochs(problems, position, count, seed)
    rates = list(_rates(problems, weights).values())
    # At most len(problems) places can lie between a time and the place that the rates give it.
    slack, total = len(problems) + 1, math.fsum(rates)
    low, high = max(0.0, (position - slack) / total), (position + count + slack) / total
    before, times = 0, []
    for i, (problem, rate) in enumerate(zip(problems, rates, strict=True)):
        first = math.floor(low * rate)
        before += first
        for k in range(first, math.ceil(high * rate)):
            inside = random.Random(seed_of(seed, "line", problem.id, k)).random()
            times.append(((k + inside) / rate, i))
    times.sort()
    return [problems[i] for _, i in times[position - before : position - before + count]]


def _slots(
    sizes: Sequence[int], count: int, step: int, ramp_steps: int
) -> tuple[list[int], list[int]]:
    """Problems that each stage gave before a step, and gives in it: deficits are served first."""
    due = [0.0] * len(sizes)
    before, given = [0] * len(sizes), [0] * len(sizes)
    for past in range(step + 1):
        before = list(given)
        front = 1.0 + (len(sizes) - 1) * past / ramp_steps
        shares = [size * min(1.0, max(0.0, front - s)) for s, size in enumerate(sizes)]
        due = [d + count * share / sum(shares) for d, share in zip(due, shares, strict=True)]
        for _ in range(count):
            poorest = max(range(len(sizes)), key=lambda s: due[s] - given[s])
            given[poorest] += 1
    return before, [g - b for g, b in zip(given, before, strict=True)]


def _rates(problems: Sequence[Problem], weights: Mapping[str, float] | None) -> dict[str, float]:
    """Weights as shares of the largest, at least `LEAST`; all 1 where none is above 0."""
    found = {p.id: 1.0 if weights is None else weights.get(p.id, 1.0) for p in problems}
    largest = max(found.values())
    if largest <= 0.0:
        return dict.fromkeys(found, 1.0)
    return {name: max(weight / largest, LEAST) for name, weight in found.items()}


def _unique(problems: Sequence[Problem]) -> list[Problem]:
    return list({p.id: p for p in problems}.values())
