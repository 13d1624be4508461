"""Two tokenisations of the same bytes, matched wherever both end a token at the same byte.

Nothing is decoded and nothing is searched for: tokens are lengths in bytes, so half a character is
a token like any other, and the cost is linear in the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@frozen(eq=False)
class Alignment:
    """
    Groups of tokens that stand for the same bytes: 1-1, n-1, 1-n or n-m, as small as they can be.

    Attributes:
        ours: (n,) group number of each of our tokens, ascending; -1: in none.
        theirs: (m,) the same of their tokens.
        ours_in: (g,) how many of our tokens a group has.
        theirs_in: (g,) how many of theirs.
    """

    ours: Numbers
    theirs: Numbers
    ours_in: Numbers
    theirs_in: Numbers

    @property
    def is_single(self) -> NDArray[np.bool_]:
        """(g,) Whether the group is one token of each, so both stand for the same bytes."""
        return np.logical_and(self.ours_in == 1, self.theirs_in == 1)

    def __len__(self) -> int:
        return len(self.ours_in)


def align(
    ours: Sequence[int] | Numbers,
    theirs: Sequence[int] | Numbers,
    missing: Sequence[bool] | NDArray[np.bool_] | None = None,
) -> Alignment:
    """
    The groups of two tokenisations.

    Args:
        ours: (n,) bytes of each of our tokens; 0: it stands for none and joins no group.
        theirs: (m,) the same of theirs. Both sum to the same number of bytes.
        missing: (m,) True where bytes have no token of theirs: a placeholder for a gap. A group
            that touches one is no group.

    Raises:
        ValueError: The two do not have the same number of bytes.
    """
    a, b = np.asarray(ours, np.int64), np.asarray(theirs, np.int64)
    gaps = np.zeros(len(b), bool) if missing is None else np.asarray(missing, bool)
    total = int(a.sum())
    if total != int(b.sum()):
        raise ValueError(f"{total} bytes here and {int(b.sum())} there cannot be aligned")
    ends_a, ends_b = np.cumsum(a), np.cumsum(b)
    common = _marked(ends_a, total) & _marked(ends_b, total)  # (bytes + 1,) both end here
    number: Numbers = np.cumsum(common) - common  # (bytes + 1,) common ends before this one
    in_a = np.where(a > 0, number[ends_a], -1)
    in_b = np.where(b > 0, number[ends_b], -1)
    kept = np.ones(int(common.sum()), bool)
    kept[in_b[gaps & (b > 0)]] = False
    renumbered = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)  # the last: of -1
    in_a, in_b = renumbered[in_a], renumbered[in_b]
    count = int(kept.sum())
    return Alignment(
        ours=in_a,
        theirs=in_b,
        ours_in=np.bincount(in_a[in_a >= 0], minlength=count),
        theirs_in=np.bincount(in_b[in_b >= 0], minlength=count),
    )


def _marked(ends: Numbers, total: int) -> NDArray[np.bool_]:
    """(total + 1,) where tokens end; the beginning ends none."""
    marks = np.zeros(total + 1, bool)
    marks[ends] = True
    marks[0] = False
    return marks


def group_sums(groups: Numbers, values: NDArray[np.floating], count: int) -> NDArray[np.float64]:
    """(count,) sums of token values (n,) over their groups; tokens of no group are left out."""
    inside = groups >= 0
    found = np.bincount(groups[inside], np.asarray(values, np.float64)[inside], minlength=count)
    return found.astype(np.float64)


def spread(
    groups: Numbers, lengths: Sequence[int] | Numbers, totals: NDArray[np.floating]
) -> NDArray[np.float64]:
    """(n,) each group's total (g,) divided among its tokens by their bytes; 0 outside."""
    weight = np.where(groups >= 0, np.asarray(lengths, np.float64), 0.0)
    whole = group_sums(groups, weight, len(totals))
    share = np.zeros(len(groups))
    inside = groups >= 0
    share[inside] = weight[inside] / whole[groups[inside]] * totals[groups[inside]]
    return share
