"""A tokenizer of single characters."""

from __future__ import annotations

import string
from collections.abc import Sequence

from rlvr.parts import Tokenizer
from rlvr.types import Message


class CharTokenizer(Tokenizer):
    """
    One token a character; id 0 ends a text.

    Each character has *two* ids that decode to it: `encode` gives the lower one, a policy may
    draw either. A sampler that tokenises text again instead of keeping what was drawn is thereby
    found out (see `alias`).

    Args:
        alphabet: The characters it knows, each once. Others raise `ValueError`.
    """

    eos_id = 0

    def __init__(self, alphabet: str = string.printable) -> None:
        if len(set(alphabet)) != len(alphabet):
            raise ValueError("a character stands twice in the alphabet")
        self.alphabet = alphabet
        self.vocab_size = 1 + 2 * len(alphabet)

    def encode(self, text: str) -> list[int]:
        """Lower ids of the characters."""
        unknown = sorted(set(text) - set(self.alphabet))
        if unknown:
            raise ValueError(f"characters outside the alphabet: {''.join(unknown)!r}")
        return [1 + self.alphabet.index(char) for char in text]

    def alias(self, token: int) -> int:
        """The other id of the same character; the end token has none."""
        size = len(self.alphabet)
        if token == self.eos_id:
            return token
        return token + size if token <= size else token - size

    def decode(self, tokens: Sequence[int]) -> str:
        """Characters of the ids, the end token left out."""
        size = len(self.alphabet)
        return "".join(self.alphabet[(int(t) - 1) % size] for t in tokens if t != self.eos_id)

    def render(self, messages: Sequence[Message], *, first: bool = True) -> list[int]:
        """The contents one after the other; later turns render like the first."""
        return self.encode("".join(message.content for message in messages))
