"""A teacher's rows in few bytes: 6 k + 10 a position, with logprobs as float16 rounded down.

Rounding down keeps every probability at or below what the teacher said, so that no row sums to more
than 1; what is rounded off joins the rest. Near 0 nats float16 has steps of 6e-8, at 1 nat of 1e-3,
at 10 nats of 8e-3: a probability is at most that share too small.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlvr import TopK

_LOWEST = float(np.finfo(np.float16).min)


def row_type(k: int) -> np.dtype:
    """
    The fields of a row.

    `place`, position in the sequence; `ids`, likeliest first, -1: none; `logprobs` in nats, -inf
    where there is none; `actual`, nats, of the token that stands there; `entropy`, nats, where what
    lies beyond the k counts as one token.
    """
    sized = [("ids", "<i4", (k,)), ("logprobs", "<f2", (k,))]
    return np.dtype([("place", "<i4"), *sized, ("actual", "<f4"), ("entropy", "<f2")])


def rows_of(answer: TopK, places: NDArray[np.int64], k: int) -> np.ndarray:
    """
    Rows (n,) to keep of a teacher's answer.

    Args:
        answer: (n, k or more).
        places: (n,) their positions.
        k: Tokens to keep, the likeliest.
    """
    logprobs = np.where(answer.ids >= 0, answer.logprobs, -np.inf)
    order = np.argsort(-logprobs, axis=-1, kind="stable")[:, :k]
    logprobs = np.take_along_axis(logprobs, order, -1).astype(np.float64)
    over = np.log(np.exp(logprobs).sum(-1, keepdims=True))  # a teacher may round its sum above 1
    logprobs = logprobs - np.maximum(over, 0.0)
    kept = rounded_down(logprobs)
    rows = np.empty(len(places), row_type(order.shape[1]))
    rows["place"], rows["actual"] = places, answer.actual
    rows["ids"] = np.where(np.isneginf(kept), -1, np.take_along_axis(answer.ids, order, -1))
    rows["logprobs"], rows["entropy"] = kept, entropy_of(logprobs)
    return rows


def answer_of(rows: np.ndarray, start: int, length: int, k: int, *, is_whole: bool) -> TopK:
    """
    What stands at `start` to `length` - 1; positions that were not asked for hold NaN.

    A whole distribution is brought back to a sum of 1.
    """
    count = length - start
    ids = np.full((count, k), -1, np.int32)
    logprobs = np.full((count, k), -np.inf, np.float32)
    actual = np.full(count, np.nan, np.float32)
    rows = rows[(rows["place"] >= start) & (rows["place"] < length)]
    at = rows["place"] - start
    kept = rows["logprobs"][:, :k].astype(np.float32)
    if is_whole:
        kept = kept - np.log(np.exp(kept, dtype=np.float64).sum(-1, keepdims=True))
    ids[at], logprobs[at], actual[at] = rows["ids"][:, :k], kept, rows["actual"]
    return TopK(ids=ids, logprobs=logprobs, actual=actual, is_whole=is_whole)


def rounded_down(values: NDArray[np.float64]) -> NDArray[np.float16]:
    """The largest float16 that is not above each value; -inf stays."""
    kept = np.maximum(values, _LOWEST).astype(np.float16)
    with np.errstate(over="ignore"):  # below the lowest float16 is -inf
        kept = np.where(kept > values, np.nextafter(kept, np.float16(-np.inf)), kept)
    return np.where(np.isneginf(values), np.float16(-np.inf), kept).astype(np.float16)


def entropy_of(logprobs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Entropy (n,) of rows (n, k) with the rest as one token, nats: at most the true one."""
    p = np.exp(logprobs)
    rest = np.maximum(1.0 - p.sum(-1), 0.0)
    inside = -np.where(p > 0.0, p * np.where(p > 0.0, logprobs, 0.0), 0.0).sum(-1)
    return inside - rest * np.log(np.where(rest > 0.0, rest, 1.0))
