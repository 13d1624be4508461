"""An episode: the turns of one attempt at a problem."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import field, frozen

from rlvr.parts.base import Part
from rlvr.types import Completion, Message

if TYPE_CHECKING:
    from rlvr.parts.tokenizer import Tokenizer


@frozen(kw_only=True)
class EpisodeResult:
    """
    Data of an episode for the reward, besides its texts.

    Attributes:
        files: The answer as a state of files, path to text; None: the last text is the answer.
        notes: JSON values that become `Trajectory.notes`.
    """

    files: Mapping[str, str] | None = None
    notes: Mapping[str, Any] = field(factory=dict)


class Episode(Part):
    """
    One attempt at a problem. Gives the next prompt and takes the completion until it ends.

    The first `prompt()` is the whole prompt; later ones are only what the environment adds.

    Attributes:
        writes_tokens: It makes its own token ids, as environments of other libraries do: a sampler
            that has tokens asks `next_tokens` and `take_tokens` in place of `prompt` and `take`.
    """

    kind: ClassVar[str] = "episode"

    writes_tokens: bool = False

    @abc.abstractmethod
    def prompt(self) -> Sequence[Message] | None:
        """Messages to put before the policy next; None when the episode has ended."""

    @abc.abstractmethod
    async def take(self, completion: str) -> None:
        """Accept the policy's text for the prompt that was given last."""

    def start(self, tokenizer: Tokenizer) -> None:
        """Called once, before the first prompt, where the policy has a tokenizer at hand."""

    def result(self) -> EpisodeResult:
        """The answer's files and notes about the turns; called after the last turn."""
        return EpisodeResult()

    async def next_tokens(self) -> Sequence[int] | None:
        """Ids to put before the policy: the whole prompt, later what is added; None at the end."""
        raise NotImplementedError(f"{type(self).__name__}.writes_tokens, so it has next_tokens")

    async def take_tokens(self, completion: Completion) -> None:
        """Accept what the policy drew for the ids that were given last, token for token."""
        raise NotImplementedError(f"{type(self).__name__}.writes_tokens, so it has take_tokens")

    def stop_texts(self) -> Sequence[str]:
        """Texts that end the policy's turn, besides its own end of turn and `sampler.stop`."""
        return ()


class SingleTurn(Episode):
    """An episode that ends with the first completion."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages: tuple[Message, ...] | None = tuple(messages)

    def prompt(self) -> Sequence[Message] | None:
        """The whole prompt first, then None."""
        return self._messages

    async def take(self, completion: str) -> None:
        """End the episode: a single turn reads nothing from the answer."""
        self._messages = None
