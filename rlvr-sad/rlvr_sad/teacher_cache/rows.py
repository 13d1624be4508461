"""A teacher's rows in few bytes: ids int32, logprobs float16 rounded down, places, entropy.

Rounding down keeps every probability at or below what the teacher said, so that no row sums to more
than 1; what is rounded off joins the rest. Near 0 nats float16 has steps of 6e-8, at 1 nat of 1e-3,
at 10 nats of 8e-3: a probability is at most that share too small.
"""

from __future__ import annotations

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from rlvr import TopK

_LOWEST = float(np.finfo(np.float16).min)


@frozen(eq=False)
class Rows:
    """
    Answers at n positions of a sequence.

    Attributes:
        places: (n,) int32, position in the sequence.
        ids: (n, k) int32, likeliest first, -1: none.
        logprobs: (n, k) float16 nats, -inf where there is none.
        actual: (n,) float32 nats, of the token that stands there.
        entropy: (n,) float16 nats; what lies beyond the k counts as one token.
    """

    places: NDArray[np.int32]
    ids: NDArray[np.int32]
    logprobs: NDArray[np.float16]
    actual: NDArray[np.float32]
    entropy: NDArray[np.float16]

    def answer(self, start: int, length: int, k: int, *, is_whole: bool) -> TopK:
        """
        What stands at `start` to `length` - 1; positions that were not asked for hold NaN.

        A whole distribution is brought back to a sum of 1.
        """
        rows = length - start
        ids = np.full((rows, k), -1, np.int32)
        logprobs = np.full((rows, k), -np.inf, np.float32)
        actual = np.full(rows, np.nan, np.float32)
        inside = (self.places >= start) & (self.places < length)
        at = self.places[inside] - start
        kept = self.logprobs[inside, :k].astype(np.float32)
        if is_whole:
            kept = kept - np.log(np.exp(kept, dtype=np.float64).sum(-1, keepdims=True))
        ids[at], logprobs[at], actual[at] = self.ids[inside, :k], kept, self.actual[inside]
        return TopK(ids=ids, logprobs=logprobs, actual=actual, is_whole=is_whole)


def rows_of(answer: TopK, places: NDArray[np.int64], k: int) -> Rows:
    """
    Rows to keep of a teacher's answer.

    Args:
        answer: (n, k or more).
        places: (n,) their positions.
        k: Tokens to keep, the likeliest.
    """
    logprobs = np.where(answer.ids >= 0, answer.logprobs, -np.inf)
    order = np.argsort(-logprobs, axis=-1, kind="stable")[:, :k]
    ids = np.take_along_axis(answer.ids, order, -1)
    logprobs = np.take_along_axis(logprobs, order, -1).astype(np.float64)
    over = np.log(np.exp(logprobs).sum(-1, keepdims=True))  # a teacher may round its sum above 1
    logprobs = logprobs - np.maximum(over, 0.0)
    kept = rounded_down(logprobs)
    return Rows(
        np.asarray(places, np.int32),
        np.where(np.isneginf(kept), -1, ids).astype(np.int32),
        kept,
        answer.actual.astype(np.float32),
        entropy_of(logprobs).astype(np.float16),
    )


def rounded_down(values: NDArray[np.float64]) -> NDArray[np.float16]:
    """The largest float16 that is not above each value; -inf stays."""
    kept = np.maximum(values, _LOWEST).astype(np.float16)
    with np.errstate(over="ignore"):  # below the lowest float16 is -inf
        kept = np.where(kept > values, np.nextafter(kept, np.float16(-np.inf)), kept)
    kept = np.where(np.isneginf(values), np.float16(-np.inf), kept)
    return kept.astype(np.float16)


def entropy_of(logprobs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Entropy (n,) of rows (n, k) with the rest as one token, nats: at most the true one."""
    p = np.exp(logprobs)
    rest = np.maximum(1.0 - p.sum(-1), 0.0)
    inside = -np.where(p > 0.0, p * np.where(p > 0.0, logprobs, 0.0), 0.0).sum(-1)
    beyond = -np.where(rest > 0.0, rest * np.log(np.where(rest > 0.0, rest, 1.0)), 0.0)
    return inside + beyond
