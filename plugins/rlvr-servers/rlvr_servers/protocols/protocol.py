"""What is asked of any server, whatever it calls it: to score tokens, and to draw them.

Shapes: S tokens of a sequence, n = S - start positions.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from attrs import define, frozen

from rlvr import GenerateRequest, TeacherRequest
from rlvr_servers.client.endpoint import BrokenError, Endpoint, RequestError

T = TypeVar("T")

LEAST = -1e4
"""Stands for the logprob of a token that cannot be: JSON has no infinity."""


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


@define
class ServerProtocol(abc.ABC):
    """
    One kind of server.

    Attributes:
        lacks: What to do where it does not score prompts.
        adapter: Name of a loaded adapter that answers; "": the model itself.
    """

    lacks: ClassVar[str]
    endpoint: Endpoint
    adapter: str = ""

    @abc.abstractmethod
    async def served(self) -> Served:
        """What the server says of itself."""

    async def ids_of(self, text: str) -> list[int] | None:
        """How the server tokenises a text; None where it does not tell."""
        return None

    @abc.abstractmethod
    async def score(self, question: TeacherRequest, retries: int | None = None) -> Scored:
        """
        The k likeliest tokens (0: none) and the actual one at each position of the question.

        Raises:
            RequestError: No answer, a refusal, other ids, no logprobs at all.
        """

    @abc.abstractmethod
    async def draw(self, request: GenerateRequest, ends: Collection[int]) -> Drawn:
        """
        A completion, which a token of `ends`, a stop text or `params.max_tokens` ends.

        Raises:
            RequestError: No answer, a refusal, or one without token ids and logprobs.
        """

    async def complete(
        self,
        prompt: list[int] | str,
        fields: Mapping[str, Any],
        read: Callable[[Any], T],
        retries: int | None = None,
    ) -> T:
        """What `read` makes of the answer of `/v1/completions`."""
        body = {"model": self.endpoint.model, "prompt": prompt, **fields}
        return await self.endpoint.ask("/v1/completions", body, read, retries=retries)


def choice_of(found: Any) -> Mapping[str, Any]:
    """The one choice of an answer of `/v1/completions`."""
    try:
        choice: Mapping[str, Any] = found["choices"][0]
        choice.get("index")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise BrokenError("the answer is no completion") from error
    return choice


def number(value: Any) -> float:
    """A logprob of an answer; NaN stays one, what is no number is a `BrokenError`."""
    if value is None:
        raise BrokenError("a logprob is null")
    try:
        found = float(value)
    except (TypeError, ValueError) as error:
        raise BrokenError(f"a logprob is {str(value)[:40]!r}") from error
    return max(found, LEAST) if not math.isnan(found) else found


def likeliest(entries: Iterable[tuple[int | None, float]], k: int) -> list[tuple[int, float]]:
    """The k entries with the largest logprobs, each id once; those that cannot be are left out."""
    kept = {t: value for t, value in entries if t is not None and not value <= LEAST}
    return sorted(kept.items(), key=lambda entry: -entry[1])[:k]
