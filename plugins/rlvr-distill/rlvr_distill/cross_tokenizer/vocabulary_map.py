"""Map the tokens of one vocabulary to another: by equal bytes, or the first token of the bytes.

Shapes: n rows of a distribution, k tokens a row, V ids of their vocabulary.
"""

from __future__ import annotations

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from rlvr import IntArray
from rlvr_distill.cross_tokenizer.token_bytes import TokenBytes

_UNASKED = -2


@frozen(eq=False)
class Projected:
    """
    Rows of their distribution over our ids.

    Attributes:
        ids: (n, j) each at most once a row; -1: none.
        logprobs: (n, j) nats; -inf where `ids` is -1.
        unmatched: (n,) probability of their tokens that no token of ours equals.
    """

    ids: IntArray
    logprobs: NDArray[np.float32]
    unmatched: NDArray[np.float64]


class VocabularyMap:
    """
    Their ids as ours.

    A text token is the one of equal bytes, else the first token that its bytes are cut into, else
    none: its probability is then part of the rest. A control token is the one of ours with its
    name; a token that ends their answers is the one that ends ours.
    """

    def __init__(self, theirs: TokenBytes, ours: TokenBytes) -> None:
        self._theirs, self._ours = theirs, ours
        size = theirs.tokenizer.vocab_size
        self._ids = np.full(size, _UNASKED, np.int64)
        self._is_equal = np.zeros(size, bool)
        self._names = {ours.bytes_of(i): i for i in sorted(ours.controls, reverse=True)}

    def id_of(self, token: int) -> tuple[int, bool]:
        """Our id of one of theirs (-1: none), and whether the two stand for the same."""
        if not 0 <= token < len(self._ids):
            return -1, False
        if self._ids[token] == _UNASKED:
            self._ids[token], self._is_equal[token] = self._find(token)
        return int(self._ids[token]), bool(self._is_equal[token])

    def rows(self, ids: NDArray[np.integer], logprobs: NDArray[np.floating]) -> Projected:
        """
        Rows of theirs (n, k), -1 for none, as ours; tokens that become one add up.

        An id outside their vocabulary is none, too: a row that only pads a model.
        """
        for token in np.unique(ids):
            self.id_of(int(token))
        is_there = (ids >= 0) & (ids < len(self._ids))
        ours = np.where(is_there, self._ids[np.where(is_there, ids, 0)], -1)  # (n, k)
        equal = is_there & self._is_equal[np.where(is_there, ids, 0)]
        p = np.where(is_there, np.exp(np.asarray(logprobs, np.float64)), 0.0)  # (n, k)
        unmatched = np.where(is_there & ~equal, p, 0.0).sum(-1)
        merged, sums = _merged(ours, p)
        with np.errstate(divide="ignore"):
            return Projected(merged.astype(np.int32), np.log(sums).astype(np.float32), unmatched)

    def _find(self, token: int) -> tuple[int, bool]:
        theirs, ours = self._theirs, self._ours
        if token in theirs.controls:
            named = self._names.get(theirs.bytes_of(token))
            if token in theirs.ends and named not in ours.ends:
                named = ours.ends[0]
            return (-1, False) if named is None else (named, True)
        spelled = theirs.bytes_of(token)
        if not spelled:
            return -1, False
        equal = ours.id_of(spelled)
        if equal is not None:
            return equal, True
        cut = ours.encode(spelled)
        return (-1, False) if cut.missing[0] else (int(cut.ids[0]), False)


def _merged(
    ids: NDArray[np.int64], values: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rows (n, k) with equal ids added up, filled with -1 and 0 to the longest row's length."""
    n = len(ids)
    if not ids.size:
        return np.full((n, 1), -1, np.int64), np.zeros((n, 1))
    width = int(ids.max()) + 2
    keys = (np.arange(n)[:, None] * width + ids + 1).ravel()
    unique, where = np.unique(keys, return_inverse=True)
    sums = np.bincount(where.ravel(), values.ravel(), minlength=len(unique))
    row, column = unique // width, unique % width - 1
    kept = (column >= 0) & (sums > 0)
    row, column, sums = row[kept], column[kept], sums[kept]
    counts = np.bincount(row, minlength=n)
    place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    longest = max(int(counts.max(initial=0)), 1)
    merged, found = np.full((n, longest), -1, np.int64), np.zeros((n, longest))
    merged[row, place], found[row, place] = column, sums
    return merged, found
