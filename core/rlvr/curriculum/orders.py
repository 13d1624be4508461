"""Orders of the places 0 to P-1, which steps read from a position on, and shares of stages."""

from __future__ import annotations

import random
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rlvr.seeds import seed_of

Places = NDArray[np.intp]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@lru_cache(maxsize=16)
def permutation(total: int, epoch: int, seed: int) -> NDArray[np.int32]:
    """The order of an epoch; the last ones are kept, as an epoch lasts for many steps."""
    order = list(range(total))
    bits = random.Random(seed_of(seed, "epoch", epoch)).getrandbits
    for i in range(total - 1, 0, -1):  # `Random.shuffle` in .6 of its time, without its calls
        width = (i + 1).bit_length()
        while (j := bits(width)) > i:
            pass
        order[i], order[j] = order[j], order[i]
    found = np.array(order, dtype=np.int32)
    found.flags.writeable = False
    return found


def in_epochs(total: int, position: int, count: int, seed: int) -> Places:
    """Places `position` to `position + count` of seeded permutations, one after another."""
    parts = [np.empty(0, np.int32)]
    while count:
        epoch, offset = divmod(position, total)
        part = permutation(total, epoch, seed)[offset : offset + count]
        parts.append(part)
        position, count = position + len(part), count - len(part)
    return np.concatenate(parts).astype(np.intp)


def first_of(wanted: NDArray[np.bool_], position: int, count: int, seed: int) -> list[int]:
    """The first `count` different places from `position` on in epochs of those `wanted`."""
    total, found = len(wanted), dict[int, None]()
    epoch, offset = divmod(position, total)
    while len(found) < count:
        order = permutation(total, epoch, seed)[offset:]
        found.update(dict.fromkeys(order[wanted[order]].tolist()))
        epoch, offset = epoch + 1, 0
    return list(found)[:count]


def in_line(
    keys: NDArray[np.uint64], rates: NDArray[np.float64], position: int, count: int, seed: int
) -> Places:
    """
    Places `position` to `position + count` of an endless line.

    Who has the rate r (at most 1) stands once in each stretch of length 1/r, at a random point
    that follows from its key, the seed and the stretch alone.
    """
    # At most P of them can lie between a time and the place that the rates give it.
    slack, total = len(rates) + 1, float(rates.sum())
    low, high = max(0.0, (position - slack) / total), (position + count + slack) / total
    first = np.floor(low * rates).astype(np.int64)
    stretches = np.ceil(high * rates).astype(np.int64) - first
    who = np.repeat(np.arange(len(rates)), stretches)
    stretch = np.arange(len(who)) + np.repeat(first - stretches.cumsum() + stretches, stretches)
    points = draws(keys, seed_of(seed, "line"), who, stretch)
    times = (stretch + points) / rates[who]
    begin = position - int(first.sum())
    bounds = np.partition(times, (begin, begin + count - 1))[[begin, begin + count - 1]]
    near = np.flatnonzero((times >= bounds[0]) & (times <= bounds[1]))
    near = near[np.lexsort((who[near], times[near]))]
    begin -= int(np.count_nonzero(times < bounds[0]))
    return who[near[begin : begin + count]]


def draws(
    keys: NDArray[np.uint64],
    seed: int,
    who: Places | slice = slice(None),
    turn: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Numbers of [0, 1) by key, seed and turn: SplitMix64, much faster than a hash of each id."""
    own = _mixed(keys ^ np.uint64(seed))[who]
    turns = np.zeros(1, np.uint64) if turn is None else turn.astype(np.uint64)
    mixed = _mixed(own + turns * _GOLDEN)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def ramp(sizes: tuple[int, ...], count: int, steps: int, step: int) -> tuple[list[int], list[int]]:
    """
    Problems that each stage gave before a step of the ramp, and gives in it: see `by_stages`.

    Each problem comes from the stage that is furthest behind its share.
    """
    states = ramp_states(sizes, count, steps)
    front = 1.0 + (len(sizes) - 1) * np.arange(len(states) - 1, step + 1) / steps
    shares = np.array(sizes) * np.clip(front[:, None] - np.arange(len(sizes)), 0.0, 1.0)
    whole = np.array([sum(row) for row in shares.tolist()])[:, None]
    for due in np.cumsum(np.vstack([states[-1][0], count * shares / whole]), axis=0)[1:].tolist():
        given, left = list(states[-1][1]), count
        for s, (d, g) in enumerate(zip(due, tuple(given), strict=True)):
            sure = max(0, int(d - g) - len(sizes))  # in any order: no stage stays further behind
            given[s], left = g + sure, left - sure
        short = [d - g for d, g in zip(due, given, strict=True)]
        for _ in range(left):
            poorest = short.index(max(short))
            given[poorest] += 1
            short[poorest] = due[poorest] - given[poorest]
        states.append((due, given))
    before, after = states[step][1], states[step + 1][1]
    return before, [a - b for a, b in zip(after, before, strict=True)]


@lru_cache(maxsize=4)
def ramp_states(
    sizes: tuple[int, ...], count: int, steps: int
) -> list[tuple[list[float], list[int]]]:
    """Problems due from each stage and given by it, before step 0, 1, ...; `ramp` adds to it."""
    return [([0.0] * len(sizes), [0] * len(sizes))]
