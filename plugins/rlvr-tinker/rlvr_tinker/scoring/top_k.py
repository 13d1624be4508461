"""A model of the service's likeliest tokens at the positions of a sequence."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import numpy as np

from rlvr import BackendError, Question, TopK
from rlvr_tinker.scoring.logprobs import Wait, not_given, of_the_end

_EMPTY = -99999.0
"""The SDK's logprob of an empty place in its table, with id 0."""
_SLACK = 1e-4
"""Rounding allowed in what the probabilities of a whole row sum to."""


async def likeliest(client: Any, question: Question, vocab_size: int, wait: Wait) -> TopK:
    """
    The k likeliest tokens at the asked positions, in descending order, and what stands there.

    The question is at temperature 1, for positions from 1 on. Ids beyond the tokenizer's
    `vocab_size` are rows that pad the model, and left out.

    Raises:
        BackendError: The service does not give them, or not for each position.
    """
    from tinker import types

    ids, k = question.ids, min(question.k, vocab_size)
    rows, doing = len(ids) - question.start, "the likeliest tokens of a sequence were asked for"

    def ask(**last: int) -> Awaitable[Any]:
        request = client.sample(
            types.ModelInput.from_ints(ids.tolist()),
            1,
            types.SamplingParams(max_tokens=1),
            include_prompt_logprobs=True,
            topk_prompt_logprobs=k,
            **last,
        )
        return wait(request, doing)

    found = await of_the_end(ask, prompt_logprobs_last_n=rows)
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
    tokens, logprobs = table.token_ids[-rows:], table.logprobs[-rows:]
    is_there = (logprobs != _EMPTY) & (tokens < vocab_size)
    kept = np.where(is_there, np.minimum(logprobs, 0.0), -np.inf)
    total = np.exp(kept, dtype=np.float64).sum(axis=1)
    return TopK(
        ids=np.where(is_there, tokens, -1),
        logprobs=kept,
        actual=np.minimum(actual[-rows:], 0.0),
        is_whole=k >= vocab_size and bool((abs(total - 1.0) <= _SLACK).all()),
    )
