"""A tokenizer: text to token ids and back."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rlvr.parts.base import Part

if TYPE_CHECKING:
    from rlvr.types import Message


class Tokenizer(Part):
    """
    Text to token ids and back.

    Attributes:
        eos_id: Ends a text.
        vocab_size: Ids are below it.
        stop_ids: Ids that end the policy's turn; empty: `eos_id` alone (read `ends`).
        bos_id: The model's own prompts may begin with it; None: they begin with no such token.
        control_ids: Ids that stand for no text.
        has_bytes: `bytes_of` is exact for every id: other tokenizers' tokens can then be aligned.
        can_save: Whether `save` works.
    """

    kind: ClassVar[str] = "tokenizer"

    eos_id: int
    vocab_size: int
    stop_ids: frozenset[int] = frozenset()
    bos_id: int | None = None
    control_ids: frozenset[int] = frozenset()
    has_bytes: bool = False
    can_save: bool = False

    @property
    def ends(self) -> frozenset[int]:
        """Ids that end the policy's turn."""
        return self.stop_ids or frozenset({self.eos_id})

    @abc.abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of a text, without any that only a template adds."""

    @abc.abstractmethod
    def decode(self, tokens: Sequence[int]) -> str:
        """The text of ids."""

    @abc.abstractmethod
    def render(self, messages: Sequence[Message], *, first: bool = True) -> list[int]:
        """Token ids of a prompt ready for the policy's turn; `first` is False for later turns."""

    def closing(self, tokens: Sequence[int]) -> list[int]:
        """Ids that close the policy's turn if `tokens` broke it off; []: there are none."""
        return []

    def bytes_of(self, token: int) -> bytes:
        """The bytes that a token stands for; without `has_bytes` those of its decoded text."""
        return self.decode([token]).encode("utf-8", "surrogatepass")

    def save(self, directory: Path) -> None:
        """Write its files into a directory."""
        raise NotImplementedError(f"{type(self).__name__}.can_save is False")
