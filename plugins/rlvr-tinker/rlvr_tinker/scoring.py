"""Logprobs and likeliest tokens of given sequences, by a model of the service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from rlvr import BackendError, Datum, FloatArray, TeacherRequest, TopK, all_of, extent

Wait = Callable[[Any, str], Awaitable[Any]]
"""Awaits a request of the SDK, with a deadline and rlvr's errors."""
_EMPTY = -99999.0
"""The SDK's logprob of an empty place in its table, with id 0."""
_SLACK = 1e-4
"""Rounding allowed in what the probabilities of a whole row sum to."""


async def score(client: Any, data: Sequence[Datum], wait: Wait) -> list[FloatArray]:
    """
    Logprobs (T,) of the supervised tokens by a sampling client, 0 elsewhere; all in flight at once.

    Raises:
        BackendError: The service gives none, or one that is not a number.
    """
    return await all_of(_score_one(client, datum, wait) for datum in data)


async def _score_one(client: Any, datum: Datum, wait: Wait) -> FloatArray:
    from tinker import types

    full = np.zeros(len(datum.tokens), np.float32)
    end = extent(datum)
    if not end:
        return full
    prompt = types.ModelInput.from_ints(datum.tokens[:end].tolist())
    doing = "a sequence was sent to be scored"

    def ask(**last: int) -> Awaitable[Any]:
        return wait(client.compute_logprobs(prompt, **last), doing)

    found = await _of_the_end(ask, prompt_logprobs_last_n=end - int(datum.mask.argmax()))
    if found is None or len(found) != end:
        reason = f"{0 if found is None else len(found)} logprobs for {end} tokens"
    else:
        full[:end] = [np.nan if value is None else value for value in found]
        full[~datum.mask] = 0.0
        if np.isfinite(full).all():
            return full
        reason = f"no logprob for some tokens of problem {datum.problem_id!r}"
    raise BackendError(
        f"{doing}.", f"found: {reason}", "this service cannot be a reference or a teacher"
    )


async def of_choices(
    client: Any, prompt: Sequence[int], choices: Sequence[Sequence[int]], wait: Wait
) -> FloatArray:
    """
    Log probability of each of several continuations of a prompt, (len(choices),) nats.

    A set of legal moves, say. One request reads the prompt, and each choice the tokens it shares
    with no other; choices of one token come from a single request (`target_prompt_logprobs`).

    Raises:
        BackendError: The service does not give them, or the prompt or a choice is empty.
    """
    if not len(prompt):
        raise BackendError("choices go on from a prompt: it needs at least one token")
    if not all(len(choice) for choice in choices):
        raise BackendError("a choice without tokens has no probability")
    if choices and all(len(choice) == 1 for choice in choices):
        return await _single_tokens(client, prompt, [choice[0] for choice in choices], wait)
    data = []
    for choice in choices:
        tokens = [*prompt, *choice]
        mask = np.arange(len(tokens)) >= len(prompt)
        zeros = np.zeros(len(tokens))
        data.append(
            Datum(tokens=tokens, mask=mask, logprobs=zeros, advantages=zeros, weights=zeros)
        )
    return np.array([s.sum() for s in await score(client, data, wait)], np.float32)


async def _single_tokens(
    client: Any, prompt: Sequence[int], tokens: Sequence[int], wait: Wait
) -> FloatArray:
    from tinker import types

    # row i asks about place i + 1; the place after the prompt is made by one more token
    targets = np.full((len(prompt), len(tokens)), -1, np.int64)
    targets[-1] = tokens
    found = await wait(
        client.sample(
            types.ModelInput.from_ints([*prompt, tokens[0]]),
            1,
            types.SamplingParams(max_tokens=1),
            target_prompt_logprobs=types.TensorData.from_numpy(targets),
        ),
        "the probabilities of some tokens were asked for",
    )
    if found.target_prompt_logprobs is None:
        raise _not_given("target_prompt_logprobs")
    return np.asarray(found.target_prompt_logprobs.to_numpy()[-1], np.float32)


async def likeliest(client: Any, question: TeacherRequest, vocab_size: int, wait: Wait) -> TopK:
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

    found = await _of_the_end(ask, prompt_logprobs_last_n=rows)
    actual, table = found.prompt_logprobs_np, found.topk_prompt_logprobs_np
    if actual is None or table is None:
        raise _not_given("topk_prompt_logprobs")
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


async def _of_the_end(ask: Callable[..., Awaitable[Any]], **last: int) -> Any:
    """
    The answer for the end of a sequence alone: a service can take the rest from its cache.

    Where the SDK says that the server is too old for that, the whole sequence is asked for.
    """
    try:
        return await ask(**last)
    except Exception as error:
        if "predate this feature" not in str(error) + str(error.__cause__):
            raise
        return await ask()


def _not_given(what: str) -> BackendError:
    """An answer without what was asked for."""
    return BackendError(
        f"{what} were asked of the service.",
        "found: an answer without them",
        "use a server that gives them: rlvr tinker-server does",
    )
