"""The simplest episode: one prompt, one answer."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr.types import Message


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
