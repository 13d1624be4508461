"""A sequence that is longer than a model reads, as windows that lose none of what is learnt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

LONG = ("window", "cut", "drop")


@frozen
class Window:
    """Tokens `start` to `end` of a sequence; those from `learnt` on count, those before do not."""

    start: int
    end: int
    learnt: int


def windows(
    mask: NDArray[np.bool_],
    limit: int,
    overlap: int,
    long: str,
    pictures: Sequence[tuple[int, int]] = (),
) -> list[Window]:
    """
    The parts of a sequence that fit.

    Args:
        mask: (T,) True where a token is learnt.
        limit: Tokens that a model reads, at least 2.
        overlap: Tokens before a later window's first learnt one that it is given to read, where
            there are as many; below `limit`.
        long: "window": as many windows as needed, each learnt token in exactly one of them;
            "cut": the one with the most learnt tokens, the earliest of equals; "drop": none.
        pictures: Where the tokens of each begin and end, in order; none is learnt, and a window
            has all of them or none.

    Returns:
        In order; none where nothing is learnt. What fits is one window. A token that nothing can be
        read before, since the picture before it is too large, is its window's first and not learnt.
    """
    places = np.flatnonzero(mask)
    if not len(places):
        return []
    if len(mask) <= limit:
        return [Window(0, len(mask), 0)]
    if long == "drop":
        return []
    if long == "cut":
        return [_fullest(mask, limit, pictures)]
    found = []
    at = int(places[0])
    while True:
        start = 0 if at < limit - overlap else max(at - overlap, 0)
        start = _outside(start, at, limit, pictures)
        end = min(start + limit, len(mask))
        last = int(places[np.searchsorted(places, end) - 1])
        found.append(Window(start, last + 1, at))
        behind = np.searchsorted(places, end)
        if behind == len(places):
            return found
        at = int(places[behind])


def _outside(start: int, at: int, limit: int, pictures: Sequence[tuple[int, int]]) -> int:
    """Where a window for the learnt token `at` begins without a part of a picture."""
    for first, behind in pictures:
        if first < start < behind:
            # With all of it where that leaves half of the window, or nothing else could be read.
            room = limit - 1 if behind == at else limit // 2
            return first if at - first <= room else behind
    return start


def _fullest(mask: NDArray[np.bool_], limit: int, pictures: Sequence[tuple[int, int]]) -> Window:
    """
    The window that keeps the most; its first token is only read.

    Nobody reads on behind its last learnt token, so a picture there is not in it.
    """
    sums = np.concatenate([[0], np.cumsum(mask)])  # (T + 1,)
    starts = np.arange(len(mask) - limit + 1)
    kept = sums[starts + limit] - sums[starts + 1]
    for first, behind in pictures:
        kept[first + 1 : behind] = -1  # no window begins within one
    start = int(np.argmax(kept))
    end = start + limit
    learnt = np.flatnonzero(mask[start + 1 : end])
    last = start + 1 + int(learnt[-1]) if len(learnt) else start
    end = min([end, *(first for first, behind in pictures if last < first < end)])
    return Window(start, end, start + 1)
