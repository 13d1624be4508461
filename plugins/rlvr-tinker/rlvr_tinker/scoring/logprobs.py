"""How likely a model of the service finds given tokens: references, teachers, legal moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from rlvr import BackendError, Datum, FloatArray, extent

Wait = Callable[[Any, str], Awaitable[Any]]
"""Awaits a request of the SDK, with a deadline and rlvr's errors."""


async def score(client: Any, data: Sequence[Datum], wait: Wait) -> list[FloatArray]:
    """
    Logprobs (T,) of the supervised tokens by a sampling client, 0 elsewhere; all in flight at once.

    Raises:
        BackendError: The service gives none, or one that is not a number.
    """
    asks = [_score_one(client, datum, wait) for datum in data]
    return list(await gather(asks))


async def _score_one(client: Any, datum: Datum, wait: Wait) -> FloatArray:
    from tinker import types

    full = np.zeros(len(datum.tokens), np.float32)
    end = extent(datum)
    if not end:
        return full
    first = int(np.flatnonzero(datum.mask)[0])
    prompt = types.ModelInput.from_ints(datum.tokens[:end].tolist())
    doing = "a sequence was sent to be scored"
    try:  # only the end of it: a service can take the rest from its cache
        found = await wait(client.compute_logprobs(prompt, end - first), doing)
    except Exception as error:
        if not predates(error):
            raise
        found = await wait(client.compute_logprobs(prompt), doing)
    if found is None or len(found) != end:
        raise BackendError(
            f"{doing}.",
            f"found: {0 if found is None else len(found)} logprobs for {end} tokens",
            "this service cannot be a reference or a teacher",
        )
    full[:end] = [np.nan if value is None else value for value in found]
    full[~datum.mask] = 0.0
    if not np.isfinite(full).all():
        raise BackendError(
            f"{doing}.",
            f"found: no logprob for some tokens of problem {datum.problem_id!r}",
            "this service cannot be a reference or a teacher",
        )
    return full


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
        raise not_given("target_prompt_logprobs")
    return np.asarray(found.target_prompt_logprobs.to_numpy()[-1], np.float32)


def predates(error: BaseException) -> bool:
    """Whether the SDK says that the server is older than what was asked of it."""
    return "predate this feature" in str(error) + str(error.__cause__)


def not_given(what: str) -> BackendError:
    """An answer without what was asked for."""
    return BackendError(
        f"{what} were asked of the service.",
        "found: an answer without them",
        "use a server that gives them: rlvr tinker-server does",
    )


async def gather(works: Sequence[Awaitable[Any]]) -> list[Any]:
    """All results in order; where one fails the others are given up, not left running."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
