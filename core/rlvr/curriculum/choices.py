"""Functions that choose the problems of a step, for curricula (`rlvr.parts.Curriculum`).

They are pure functions of (seed, step, history), so a resumed run goes on exactly. Each gives
`count` problems; if there are fewer, some come twice. `weights` map a problem id to a number above
0 (1 where none is given): how often the problem is taken compared with others. A weight counts as
at least `LEAST` of the largest, so every problem is met.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle, islice, repeat

import numpy as np
from numpy.typing import NDArray

from rlvr.curriculum.orders import Places, draws, first_of, in_epochs, in_line, ramp
from rlvr.curriculum.pool import Pool, pool_of
from rlvr.records.pass_rates import pass_rates
from rlvr.seeds import seed_of
from rlvr.types import PassRate, Problem

__all__ = ["by_pass_rate", "by_stages", "by_weight", "epochs"]

LEAST = 0.05
"""Least weight of a problem, as a share of the largest one."""

REVISIT = 0.1
"""How pressing a problem is whose pass rate is as far from the target as can be."""

TIED = 2048
"""Most equally pressing problems, besides those of the step, that are compared one by one."""


def epochs(problems: Sequence[Problem], count: int, *, seed: int, step: int) -> list[Problem]:
    """
    The problems of a step (0-based): epochs of seeded permutations, read one after another.

    Every problem is met once before any is met twice; a step may span two epochs.
    """
    places = in_epochs(len(problems), step * count, count, seed)
    return [problems[place] for place in places.tolist()]


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
    pool = pool_of(problems)
    rates = rates_of(weights_of(pool, weights))
    return pool.at(in_line(pool.keys, rates, step * count, count, seed))


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
    pool = pool_of(problems)
    weighed = None if weights is None else weights_of(pool, weights)
    if step >= ramp_steps:
        position, everybody = (step - ramp_steps) * count, np.arange(len(problems))
        of_all = seed_of(seed, "all stages")
        return pool.at(_in_order(pool, everybody, position, count, weighed, of_all))
    in_order = tuple(stages) == pool.ids  # as in `weights_of`
    found = stages.values() if in_order else map(stages.__getitem__, pool.ids)
    stage = np.array(list(found))
    rooms = [np.flatnonzero(stage == name) for name in np.unique(stage)]
    before, now = ramp(tuple(map(len, rooms)), count, ramp_steps, step)
    return [
        problem
        for s, room in enumerate(rooms)
        if now[s]
        for problem in pool.at(
            _in_order(pool, room, before[s], now[s], weighed, seed_of(seed, "stage", s))
        )
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
    pool = pool_of(problems)
    is_met, rate, last = pass_rates(history).columns_of(pool.ids)
    met = np.flatnonzero(is_met)
    unseen = len(pool.ids) - len(met)
    new = min(unseen, max(math.ceil(explore * count), count - len(met)))
    taken = first_of(~is_met, step * count, new, seed)
    close = REVISIT + 1.0 - abs(rate - target) / max(target, 1.0 - target)
    if weights is not None:
        close = rates_of(weights_of(pool, weights)) * close
    pressing = close * (step - last)
    most = met[_largest(pressing[met], count - new)]
    if len(most) > count - new + TIED:
        most = _fewer(most, pressing, count - new + TIED, seed_of(seed, "tied", step))
    ranked = most.tolist()
    ranked.sort(key=lambda i: (-pressing[i], seed_of(seed, "tie", step, pool.ids[i])))
    taken += ranked[: count - new]
    return list(islice(cycle(pool.problems[place] for place in taken), count))


def _in_order(
    pool: Pool,
    members: Places,
    position: int,
    count: int,
    weights: NDArray[np.float64] | None,
    seed: int,
) -> Places:
    """Places `position` to `position + count` of epochs of some problems, or of their line."""
    if weights is None:
        return members[in_epochs(len(members), position, count, seed)]
    rates = rates_of(weights[members])
    return members[in_line(pool.keys[members], rates, position, count, seed)]


def _largest(values: NDArray[np.float64], count: int) -> Places:
    """Places of the `count` largest values, and of all that equal the least of them."""
    if not 0 < count < len(values):
        return np.arange(len(values) if count else 0)
    least = np.partition(values, len(values) - count)[len(values) - count]
    return np.flatnonzero(values >= least)


def _fewer(most: Places, pressing: NDArray[np.float64], count: int, seed: int) -> Places:
    """`count` of these: all above the least of them, and a seeded choice of its equals."""
    values = pressing[most]
    above, equal = most[values > values.min()], most[values == values.min()]
    drawn = draws(equal.astype(np.uint64), seed)
    return np.append(above, equal[_largest(drawn, count - len(above))])


def weights_of(pool: Pool, weights: Mapping[str, float]) -> NDArray[np.float64]:
    """The weight of each problem."""
    in_order = tuple(weights) == pool.ids  # the usual case, four times as fast as looking up
    found = weights.values() if in_order else map(weights.get, pool.ids, repeat(1.0))
    return np.fromiter(found, np.float64, len(pool.ids))


def rates_of(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights as shares of the largest, at least `LEAST`; all 1 where none is above 0."""
    largest = float(weights.max())
    if largest <= 0.0:
        return np.ones(len(weights))
    return np.maximum(weights / largest, LEAST)
