"""What is asked of any server, whatever it calls it: to score tokens, and to draw them.

Shapes: S tokens of a sequence, n = S - start positions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from attrs import frozen

from rlvr import SamplingParams
from rlvr_servers.client.endpoint import Endpoint, RequestError
from rlvr_servers.client.requests import BrokenError

LEAST = -1e4
"""What stands for the logprob of a token that cannot be: JSON has no infinity."""


class OtherIdsError(RequestError):
    """The server scored other tokens than it was sent."""


class LacksError(RequestError):
    """The answer is well formed, and holds no logprobs of the prompt: the server has none."""


class AmbiguousError(RequestError):
    """One drawn token came back as a text that several ids share: this completion is lost."""


@frozen(kw_only=True)
class Served:
    """
    What a server says of itself.

    Attributes:
        context_length: Tokens of prompt and answer; 0 where it does not say.
        tokenizer: Where its tokenizer is; "" where it does not say.
        version: Of its weights; "" where it does not say.
    """

    context_length: int = 0
    tokenizer: str = ""
    version: str = ""


@frozen(kw_only=True)
class Scored:
    """
    What a server says of a sequence's tokens from `start` on.

    Attributes:
        rows: n rows of (token id, nats), likeliest first; at most the k that were asked for.
        actual: n numbers, nats, of the tokens themselves.
        lost: Entries whose token could not be told from another one.
    """

    rows: Sequence[Sequence[tuple[int, float]]]
    actual: Sequence[float]
    lost: int = 0


@frozen(kw_only=True)
class Drawn:
    """Tokens that a server drew, with their logprobs, nats, and whether it stopped by itself."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    is_stopped: bool
    version: str = ""


class ServerProtocol(Protocol):
    """
    One kind of server.

    Attributes:
        kind: What it is called.
        lacks: What to do where it does not score prompts.
        gives_ids: Whether drawn tokens come as ids.
    """

    kind: str
    lacks: str
    line: Endpoint

    async def served(self) -> Served:
        """What the server says of itself."""

    async def ids_of(self, text: str) -> list[int] | None:
        """How the server tokenises a text; None where it does not tell."""

    async def score(
        self,
        ids: Sequence[int],
        start: int,
        k: int,
        temperature: float,
        retries: int | None = None,
    ) -> Scored:
        """
        The k likeliest tokens (0: none) and the actual one at positions `start` to S - 1.

        Raises:
            RequestError: No answer, a refusal, other ids, no logprobs at all.
        """

    async def draw(
        self, ids: Sequence[int], params: SamplingParams, seed: int, ends: Collection[int]
    ) -> Drawn:
        """
        A completion of at most `params.max_tokens`, ended by a token of `ends` or a stop text.

        Raises:
            RequestError: No answer, a refusal, or one without token ids and logprobs.
        """


def number(value: Any) -> float:
    """A logprob of an answer; NaN stays one, what is no number is a `BrokenError`."""
    if value is None:
        raise BrokenError("a logprob is null")
    try:
        found = float(value)
    except (TypeError, ValueError) as error:
        raise BrokenError(f"a logprob is {str(value)[:40]!r}") from error
    return max(found, LEAST) if not math.isnan(found) else found


def likeliest(entries: Sequence[tuple[int, float]], k: int) -> list[tuple[int, float]]:
    """The k entries with the largest logprobs, each id once; those that cannot be are left out."""
    kept = {token: value for token, value in entries if not value <= LEAST}
    return sorted(kept.items(), key=lambda entry: -entry[1])[:k]
