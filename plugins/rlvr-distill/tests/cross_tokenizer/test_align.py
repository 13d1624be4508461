"""Two tokenisations of one text: against a search over all their boundaries, and by hand."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_distill.cross_tokenizer.align import align, group_sums, spread

LENGTHS = st.lists(st.integers(0, 4), max_size=12)


def brute_force(ours: list[int], theirs: list[int]) -> tuple[list[int], list[int]]:
    """Groups by trying every token against every stretch between two common boundaries."""
    common = sorted(set(accumulate(ours, initial=0)) & set(accumulate(theirs, initial=0)))

    def groups(lengths: list[int]) -> list[int]:
        found = []
        for start, stop in pairwise(accumulate(lengths, initial=0)):
            inside = [n for n, (a, b) in enumerate(pairwise(common)) if a <= start < stop <= b]
            found.append(inside[0] if inside else -1)
        return found

    return groups(ours), groups(theirs)


@st.composite
def two_cuts(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Lengths of two tokenisations of equally many bytes, with tokens of none among them."""
    ours, theirs = draw(LENGTHS), draw(LENGTHS)
    short = sum(ours) - sum(theirs)
    rest = [1] * abs(short)
    return (ours, theirs + rest) if short > 0 else (ours + rest, theirs)


@given(two_cuts())
def test_groups_are_the_smallest(cuts: tuple[list[int], list[int]]) -> None:
    """Each stretch between two bytes where both end a token, and no other."""
    ours, theirs = cuts

    found = align(ours, theirs)

    assert (found.ours.tolist(), found.theirs.tolist()) == brute_force(ours, theirs)
    for groups, counts in ((found.ours, found.ours_in), (found.theirs, found.theirs_in)):
        assert [groups.tolist().count(n) for n in range(len(found))] == counts.tolist()


def test_worked_by_hand() -> None:
    """`1234 hello` as 1-2-3-4-" hel"-"lo" and 12-34-" hello": 2-1, 2-1 and 2-1; then "!" is 1-1."""
    found = align([1, 1, 1, 1, 4, 2, 1], [2, 2, 6, 1])

    assert found.ours.tolist() == [0, 0, 1, 1, 2, 2, 3]
    assert found.theirs.tolist() == [0, 1, 2, 3]
    assert found.is_single.tolist() == [False, False, False, True]


def test_a_gap_takes_its_group_along() -> None:
    """Bytes that one cannot spell leave the tokens around them out, and nothing else."""
    found = align([1, 2, 2, 1], [1, 3, 1, 1], missing=[False, False, True, False])

    assert found.ours.tolist() == [0, -1, -1, 1]
    assert found.theirs.tolist() == [0, -1, -1, 1]
    assert found.is_single.tolist() == [True, True]


def test_different_texts_are_no_pair() -> None:
    """Rather than groups that mean nothing."""
    with pytest.raises(ValueError, match="3 bytes here and 4 there"):
        align([1, 2], [4])


@given(two_cuts(), st.integers(0, 10**6))
def test_what_is_spread_adds_up(cuts: tuple[list[int], list[int]], seed: int) -> None:
    """A group's total, divided among its tokens by their bytes, is the total again."""
    found = align(*cuts)
    totals = np.random.default_rng(seed).normal(size=len(found))

    shares = spread(found.ours, cuts[0], totals)

    assert group_sums(found.ours, shares, len(found)) == pytest.approx(totals)
    assert not shares[found.ours < 0].any()


def test_shares_follow_the_bytes() -> None:
    """Of -6 nats over tokens of 1 and 2 bytes: -2 and -4; the token of no bytes gets none."""
    assert spread(np.array([0, -1, 0]), [1, 0, 2], np.array([-6.0])).tolist() == [-2.0, 0.0, -4.0]


def test_the_cost_is_linear() -> None:
    """A million tokens are aligned at once: a search for pairs would not end."""
    rng = np.random.default_rng(0)
    ours = rng.integers(1, 5, 1_000_000)
    theirs = rng.permutation(ours)

    found = align(ours, theirs)

    assert int(found.ours_in.sum()) == len(ours)
    assert len(found) > 100_000
