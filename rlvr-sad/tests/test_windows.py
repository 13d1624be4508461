"""Sequences that are longer than a model reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_sad.replay.windows import Window, windows

MASKS = st.lists(st.booleans(), max_size=60)


def learnt(window: Window, mask: list[bool]) -> list[int]:
    """Positions that a window learns."""
    return [t for t in range(window.learnt, window.end) if mask[t] and t > window.start]


@given(MASKS, st.integers(2, 20), st.data())
def test_windows_lose_nothing(mask: list[bool], limit: int, data: st.DataObject) -> None:
    """Each learnt token is in exactly one window, with tokens before it; all windows fit."""
    overlap = data.draw(st.integers(1, limit - 1))
    mask[:1] = [False] * len(mask[:1])
    found = windows(np.array(mask, bool), limit, overlap, "window")

    assert [t for w in found for t in learnt(w, mask)] == [t for t, on in enumerate(mask) if on]
    for window in found:
        assert 0 <= window.start < window.end <= len(mask)
        assert window.end - window.start <= limit
    for window in found[1:]:
        assert window.learnt - window.start == overlap


@given(MASKS, st.integers(2, 20))
def test_the_best_window_is_kept(mask: list[bool], limit: int) -> None:
    """No other window of the length learns more; of equals it is the earliest."""
    mask[:1] = [False] * len(mask[:1])
    found = windows(np.array(mask, bool), limit, 1, "cut")
    if not any(mask):
        assert found == []
        return
    (kept,) = found
    if len(mask) <= limit:
        assert kept == Window(0, len(mask), 0)
        return
    counts = [sum(mask[s + 1 : s + limit]) for s in range(len(mask) - limit + 1)]
    assert len(learnt(kept, mask)) == max(counts)
    assert kept.start == counts.index(max(counts))


def test_a_window_by_hand() -> None:
    """Ten tokens, six at a time, two to read: 1-5, then from 6 on with 4 and 5 before it."""
    mask = np.array([False] + [True] * 9)

    assert windows(mask, 6, 2, "window") == [Window(0, 6, 1), Window(4, 10, 6)]
    assert windows(mask, 6, 2, "cut") == [Window(0, 6, 1)]
    assert windows(mask, 6, 2, "drop") == []
    assert windows(mask, 10, 2, "drop") == [Window(0, 10, 0)]


@pytest.mark.parametrize("long", ["window", "cut", "drop"])
def test_nothing_to_learn_is_no_window(long: str) -> None:
    """Whatever the length."""
    assert windows(np.zeros(9, bool), 4, 1, long) == []
    assert windows(np.zeros(0, bool), 4, 1, long) == []
