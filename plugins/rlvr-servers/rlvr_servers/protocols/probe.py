"""What a server can do, asked of it before anything depends on it: ids, likeliest k, temperature.

No server says these things of itself, and each fails in silence where it is taken for granted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import structlog

from rlvr import (
    BackendError,
    ConfigError,
    Message,
    RlvrError,
    TeacherCapabilities,
    TeacherRequest,
    Tokenizer,
    fingerprint,
)
from rlvr_servers.client.endpoint import MissingError, RefusedError, RequestError
from rlvr_servers.protocols.completions import Echo
from rlvr_servers.protocols.protocol import LacksError, OtherIdsError, Scored, ServerProtocol

_TEXTS = (
    "0 12 123 1234 3.14159 a b  c\td\n\nef",
    "def f(x: int) -> str:\n    return f'{x!r}' if x != 0 else \"\"\n",
    "naïve ß русский 中文字符 日本語 \U0001f469 e\u0301",
)
_WORDS = 400
"""Tokens of the vocabulary that are written out and read by the server's tokenizer."""
_PLACES = 5
_SAME = 0.05
"""Largest difference, nats, between two answers of the same logprob in a low precision."""
_SPREAD = 0.1
"""How far the ratio of two spreads may be from 1/2 and still be temperature 2."""

log = structlog.get_logger(__name__)


async def probe(
    protocol: ServerProtocol, tokenizer: Tokenizer, *, length: int, most: int, name: str
) -> tuple[TeacherCapabilities, bool]:
    """
    Ask a server for a short prompt's logprobs until it is known what it can do.

    `length` is what the model reads, in tokens; `most` the largest k that is tried. The second
    result tells whether the server's own tokenizer was seen to read texts as ours does.

    Raises:
        ConfigError: Its ids are not the tokenizer's.
        BackendError: It gives no logprobs of prompts, or does not answer.
    """
    is_checked = await _check_ids(protocol, tokenizer, length, name)
    ids = first_ids(tokenizer, length)
    await _first(protocol, ids, name)
    max_k = await _largest(protocol, ids, min(most, tokenizer.vocab_size), name)
    await _check_places(protocol, ids, min(max_k, _PLACES), name)
    honours = await _honours(protocol, ids, min(max_k, 8))
    able = TeacherCapabilities(
        has_scores=True,
        max_k=0 if max_k >= tokenizer.vocab_size else max_k,
        temperatures=None if honours else (1.0,),
        tokenizer=fingerprint(tokenizer),
        is_partial=True,  # ids that only pad its matrix; `top_k` refuses what is really missing
    )
    return able, is_checked


def first_ids(tokenizer: Tokenizer, length: int = 64) -> list[int]:
    """A few ids that a prompt may begin with."""
    ids = [i for text in _TEXTS for i in tokenizer.encode(text)][:8]
    if len(ids) < 3:
        usable = [i for i in range(min(tokenizer.vocab_size, 16)) if i not in tokenizer.ends]
        ids = usable[:6] or [0, 0, 0]
    return [*_begin(tokenizer), *ids][: max(length - 1, 2)]


def _begin(tokenizer: Tokenizer) -> list[int]:
    """The token that the model's own prompts begin with; [] for none."""
    try:
        first = tokenizer.render([Message(role="user", content="Hi")])[:1]
    except (RlvrError, ValueError):
        return []
    return first if first == [tokenizer.bos_id] else []


async def _check_places(protocol: ServerProtocol, ids: Sequence[int], k: int, name: str) -> None:
    """
    Whether a token's logprobs stand at its own place: an echo may be one off, and look right.

    What is told of a prompt's last token is compared with what is told of a token drawn there.
    """
    if not isinstance(protocol, Echo):
        return
    begin = 2 if protocol.begin == ids[0] else 1
    told = (await protocol.score(TeacherRequest(ids=ids, start=begin, k=k))).rows
    for place in range(len(ids) - 1, begin, -1):
        drawn = dict(await protocol.next_row(ids[:place], k))
        echoed = dict(told[place - begin])
        common = drawn.keys() & echoed.keys()
        if common and all(abs(drawn[i] - echoed[i]) < _SAME for i in common):
            return
    raise BackendError(
        f"teacher {name} was asked for the logprobs of a prompt.",
        "found: those that its echo puts beside a token are not the ones it draws that token "
        "with (llama-cpp-python's stand one place off where the model has no begin token)",
        "serve the model with vLLM (vllm:URL) or SGLang (sglang:URL)",
    )


async def _check_ids(
    protocol: ServerProtocol, tokenizer: Tokenizer, length: int, name: str
) -> bool:
    """Whether texts come back as ids that mean the same bytes here; False: it does not tell."""
    for text in (*_TEXTS, _vocabulary(tokenizer, length)):
        wanted = tokenizer.encode(text)
        if not wanted or tokenizer.decode(wanted) != text or len(wanted) >= length:
            continue  # a tokenizer of few characters
        found = await protocol.ids_of(text)
        if found is None:
            return False
        # a begin token and a first space may come before the text
        if not {tokenizer.decode(found[skip:]) for skip in (0, 1)} & {text, f" {text}"}:
            raise ConfigError(
                f"{name} was to read ids of the tokenizer that was read here.",
                f"found: its own writes {text[:24]!r} as {found[:6]}, which is "
                f"{tokenizer.decode(found[:6])!r} here (ours: {list(wanted[:6])})",
                "give the server's own tokenizer: servers.tokenizer=PATH",
            )
    return True


def _vocabulary(tokenizer: Tokenizer, length: int) -> str:
    count = min(_WORDS, length // 4, tokenizer.vocab_size)
    picked = np.linspace(0, tokenizer.vocab_size - 1, max(count, 1)).astype(int)
    words = [tokenizer.decode([int(i)]) for i in picked if int(i) not in tokenizer.ends]
    return " ".join(word for word in words if "\ufffd" not in word)


async def _first(protocol: ServerProtocol, ids: Sequence[int], name: str) -> None:
    """Check that it scores prompts at all; as texts if it takes no ids."""
    why = await protocol.settle(ids) if isinstance(protocol, Echo) else ""
    try:
        await protocol.score(TeacherRequest(ids=ids, start=len(ids) - 1, k=1))
    except RequestError as error:
        if isinstance(error, OtherIdsError):
            found = f"it scored other ids: {error}"
            do = "give the server's own tokenizer: servers.tokenizer=PATH"
        elif isinstance(error, RefusedError | LacksError | MissingError):
            found = f"this {protocol.endpoint.kind} server gives none: {error}"
            do = protocol.lacks
        else:
            found, do = str(error), "look at its log, and start again when it answers"
        asked = f"teacher {name} was asked for the logprobs of a prompt."
        raise BackendError(asked, f"found: {found}", do) from error
    if why:
        log.info("server_takes_texts", teacher=name, why=why[:120])


async def _largest(protocol: ServerProtocol, ids: Sequence[int], most: int, name: str) -> int:
    """The largest k up to `most` that it answers: tried, read from its refusal, or halved."""
    first, said = await _answered(protocol, ids, most)
    if first:
        return first
    for k in sorted({n for n in map(int, re.findall(r"\d+", said)) if 0 < n < most}, reverse=True):
        if (found := (await _answered(protocol, ids, k))[0]) and not (
            await _answered(protocol, ids, k + 1)
        )[0]:
            return found
    low, high = 1, most  # it answers `low`, and not `high`
    while high - low > 1:
        middle = (low + high) // 2
        if (await _answered(protocol, ids, middle))[0]:
            low = middle
        else:
            high = middle
    log.debug("k_halved", teacher=name, max_k=low)
    return low


async def _answered(protocol: ServerProtocol, ids: Sequence[int], k: int) -> tuple[int, str]:
    """How many of k entries came back, at the position that has fewest; 0 and why if none."""
    try:
        found = await protocol.score(TeacherRequest(ids=ids, start=2, k=k), retries=0)
    except RequestError as error:
        return 0, str(error)
    fewest = min((len(row) for row in found.rows), default=0)
    return (k if found.lost else fewest), f"{fewest} of {k} came back"


async def _honours(protocol: ServerProtocol, ids: Sequence[int], k: int) -> bool:
    """Whether logprobs at temperature 2 are half as far apart as at 1."""
    try:
        one, two = [
            await protocol.score(TeacherRequest(ids=ids, start=2, k=k, temperature=t))
            for t in (1.0, 2.0)
        ]
    except RequestError:
        return False
    apart = [_apart(one), _apart(two)]
    if apart[0] < 1e-3:
        return False  # a model whose tokens are all equally likely cannot tell
    return abs(apart[1] / apart[0] - 0.5) < _SPREAD


def _apart(scored: Scored) -> float:
    """Mean distance of the likeliest entry from the others and from the actual token, nats."""
    gaps = [
        row[0][1] - value
        for row, actual in zip(scored.rows, scored.actual, strict=True)
        if row
        for value in (*(v for _, v in row[1:]), actual)
    ]
    return float(np.mean(gaps)) if gaps else 0.0
