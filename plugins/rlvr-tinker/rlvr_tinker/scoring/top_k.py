"""A model of the service's likeliest tokens at the positions of a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlvr import BackendError, Question, TopK
from rlvr_tinker.scoring.logprobs import Wait, not_given, predates

_EMPTY = -99999.0
"""The SDK's logprob of an empty place in its table, with id 0."""
_SLACK = 1e-4
"""Rounding allowed in what the probabilities of a whole row sum to."""


async def likeliest(client: Any, question: Question, vocab_size: int, wait: Wait) -> TopK:
    """
    The k likeliest tokens at the asked positions, in descending order, and what stands there.

    Args:
        client: A sampling client.
        question: At temperature 1; positions from 1 on.
        vocab_size: Of the tokenizer: ids beyond it are rows that pad the model, and left out.
        wait: Awaits a request.

    Raises:
        BackendError: The service does not give them, or not for each position.
    """
    from tinker import types

    ids, k = question.ids, min(question.k, vocab_size)
    rows, doing = len(ids) - question.start, "the likeliest tokens of a sequence were asked for"

    def ask(**more: Any) -> Any:
        return client.sample(
            types.ModelInput.from_ints(ids.tolist()),
            1,
            types.SamplingParams(max_tokens=1),
            include_prompt_logprobs=True,
            topk_prompt_logprobs=k,
            **more,
        )

    try:  # only the end of it: a service can take the rest from its cache
        found = await wait(ask(prompt_logprobs_last_n=rows), doing)
    except Exception as error:
        if not predates(error):
            raise
        found = await wait(ask(), doing)
    actual, table = found.prompt_logprobs_np, found.topk_prompt_logprobs_np
    if actual is None or table is None:
        raise not_given("topk_prompt_logprobs")
    if len(actual) != len(ids) or table.token_ids.shape != (len(ids), k):
        raise BackendError(
            f"{doing}: {k} at each of {len(ids)} positions.",
            f"found: a table of {' x '.join(map(str, table.token_ids.shape))}, and "
            f"{len(actual)} logprobs",
            "this service cannot be asked for so many",
        )
    return _top(
        table.token_ids[-rows:], table.logprobs[-rows:], actual[-rows:], vocab_size=vocab_size
    )


def _top(ids: np.ndarray, logprobs: np.ndarray, actual: np.ndarray, *, vocab_size: int) -> TopK:
    is_there = (logprobs != _EMPTY) & (ids < vocab_size)
    kept = np.where(is_there, np.minimum(logprobs, 0.0), -np.inf)
    total = np.exp(kept, dtype=np.float64).sum(axis=1)
    is_whole = ids.shape[1] >= vocab_size and bool((abs(total - 1.0) <= _SLACK).all())
    return TopK(
        ids=np.where(is_there, ids, -1),
        logprobs=kept,
        actual=np.minimum(actual, 0.0),
        is_whole=is_whole,
    )
