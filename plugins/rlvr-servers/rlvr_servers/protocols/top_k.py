"""Turn a server's rows of likely tokens into a `TopK`; refuse faulty ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlvr import BackendError, TopK
from rlvr_servers.protocols.protocol import Scored

WHOLE = 1e-3
"""Probability that may be missing from a row that claims to be complete."""
MOST = 0.05
"""Nats above 0 that rounding on a server may give."""


def top_k(scored: Scored, k: int, count: int, vocab_size: int, teacher: str) -> TopK:
    """
    The answer to a question about the `k` likeliest tokens at `count` positions.

    Raises:
        BackendError: Rows are missing, NaN, above 0, or shorter than asked with probability left.
    """
    actual = check_actual(scored.actual, count, teacher)
    ids = np.full((count, k), -1, np.int64)
    logprobs = np.full((count, k), -np.inf, np.float32)
    for place, row in enumerate(scored.rows):
        if row:
            ids[place, : len(row)] = [token for token, _ in row]
            logprobs[place, : len(row)] = [value for _, value in row]
    _refuse_numbers(logprobs[ids >= 0], teacher)
    mass = np.exp(np.minimum(logprobs, 0.0).astype(np.float64)).sum(axis=1)  # (n,)
    found = (ids >= 0).sum(axis=1)
    pads = ids >= vocab_size  # rows that pad the model's matrix: they count as the rest
    ids, logprobs = np.where(pads, -1, ids), np.where(pads, -np.inf, logprobs)
    short = (found < min(k, vocab_size)) & (mass < 1 - WHOLE)
    if short.any() and not scored.lost:
        place = int(short.argmax())
        raise BackendError(
            f"teacher {teacher} was asked for the {k} likeliest tokens a position.",
            f"found: {found[place]} at position {place}, which hold {mass[place]:.3f} of the "
            "probability",
            f"ask for fewer (distill.top_k={found[place]}), or allow more on the server "
            "(vllm serve --max-logprobs K)",
        )
    return TopK(
        ids=ids,
        logprobs=np.minimum(logprobs, 0.0),
        actual=np.minimum(actual, 0.0),
        is_whole=bool((mass >= 1 - WHOLE).all() and k >= vocab_size and not pads.any()),
    )


def check_actual(values: Sequence[float], count: int, teacher: str) -> np.ndarray:
    """
    Logprobs (n,) of the tokens themselves.

    Raises:
        BackendError: Another number of them, NaN, or above 0.
    """
    if len(values) != count:
        raise BackendError(
            f"teacher {teacher} was asked for {count} logprobs.",
            f"found: {len(values)} came back",
            "look at the log of the server",
        )
    actual = np.asarray(values, np.float32)
    _refuse_numbers(actual, teacher)
    return actual


def _refuse_numbers(values: np.ndarray, teacher: str) -> None:
    asked = f"teacher {teacher} was asked for logprobs."
    if np.isnan(values).any():
        raise BackendError(
            asked,
            "found: NaN",
            "serve the model in a higher precision (--dtype bfloat16 or float32)",
        )
    if (values > MOST).any():
        raise BackendError(
            asked,
            f"found: {values[values > MOST][0]:.4g}, more than 0",
            "serve raw or processed logprobs (vllm serve --logprobs-mode raw_logprobs), not logits",
        )
