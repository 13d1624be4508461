"""Find the end of a completion: an end token, or the first stop text, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
from attrs import frozen

from rlvr.parts import Tokenizer
from rlvr.types import Completion


@frozen(kw_only=True)
class CompletionEnd:
    """The tokens that count, their text without end token and stop text, and why it ended."""

    count: int
    text: str
    is_stopped: bool


def cut(
    tokens: Sequence[int],
    *,
    ends: Collection[int],
    stops: Sequence[str],
    bytes_of: Callable[[int], bytes],
) -> CompletionEnd:
    """
    The end of a completion as this sampler sets it, whatever the service made of the stop texts.

    Bytes, not characters, are compared: a stop text may begin in one token and end in another.
    """
    wanted = [stop.encode() for stop in stops if stop]
    reach = max((len(stop) for stop in wanted), default=1) - 1
    seen = bytearray()
    for index, token in enumerate(tokens):
        if token in ends:
            return CompletionEnd(count=index + 1, text=_text(seen), is_stopped=True)
        start = max(0, len(seen) - reach)
        seen += bytes_of(token)
        if any(seen.find(stop, start) >= 0 for stop in wanted):
            first = min(at for stop in wanted if (at := seen.find(stop)) >= 0)
            return CompletionEnd(count=index + 1, text=_text(seen[:first]), is_stopped=True)
    return CompletionEnd(count=len(tokens), text=_text(seen), is_stopped=False)


def cut_completion(
    tokens: Sequence[int],
    logprobs: Sequence[float],
    *,
    tokenizer: Tokenizer,
    stops: Sequence[str],
    is_stopped: bool,
) -> Completion:
    """The completion of tokens and logprobs (T,) that a service drew; it ends as `cut` says."""
    found = cut(tokens, ends=tokenizer.ends, stops=stops, bytes_of=tokenizer.bytes_of)
    return Completion(
        tokens=tokens[: found.count],
        logprobs=np.minimum(np.asarray(logprobs[: found.count], np.float32), 0.0),
        text=found.text,
        finish="stop" if found.is_stopped or is_stopped else "length",
    )


def _text(seen: bytearray) -> str:
    return seen.decode("utf-8", errors="replace")
