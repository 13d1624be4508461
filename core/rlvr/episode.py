"""The simplest episode: one prompt, one answer; and what an episode may have besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from rlvr.parts import Tokenizer
from rlvr.types import Completion, Message, Problem


class SingleTurn:
    """An episode that ends with the first completion."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages: tuple[Message, ...] | None = tuple(messages)

    def prompt(self) -> Sequence[Message] | None:
        """The whole prompt first, then None."""
        return self._messages

    async def take(self, completion: str) -> None:
        """End the episode: a single turn reads nothing from the answer."""
        self._messages = None


@runtime_checkable
class LeavesFiles(Protocol):
    """An episode whose answer is a state of files rather than its last text (optional)."""

    def files(self) -> Mapping[str, str] | None:
        """The answer as it stands, path to text; None: the last text is the answer."""


@runtime_checkable
class LeavesNotes(Protocol):
    """An episode that tells the reward what happened in its turns (optional)."""

    def notes(self) -> Mapping[str, Any]:
        """JSON values; they become `Trajectory.notes` when the episode has ended."""


@runtime_checkable
class CountsTokens(Protocol):
    """An episode whose messages have a budget in tokens (optional)."""

    def count_with(self, tokenizer: Tokenizer) -> None:
        """Called once, before the first prompt, with the tokenizer of the policy."""


@runtime_checkable
class WritesTokens(Protocol):
    """
    An episode that makes its own token ids, as environments of other libraries do (optional).

    A sampler that has tokens asks it in place of `prompt` and `take`.
    """

    async def next_tokens(self) -> Sequence[int] | None:
        """Ids to put before the policy: the whole prompt, later what is added; None at the end."""

    async def take_tokens(self, completion: Completion) -> None:
        """Accept what the policy drew for the ids that were given last, token for token."""

    def stop_texts(self) -> Sequence[str]:
        """Texts that end the policy's turn, besides its own end of turn and `sampler.stop`."""


@runtime_checkable
class Posing(Protocol):
    """A task some of whose problems cannot be put to a policy: nothing to answer (optional)."""

    def unposed(self, problem: Problem) -> str:
        """Why not; "" where it can. Such problems are left out where the policy samples."""
