"""A tokenizer of bytes, in a module of its own: worker processes have to find it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rlvr import Message, Tokenizer


class ByteTokenizer(Tokenizer):
    """One token a byte; counts how often it is asked."""

    eos_id = 0
    has_bytes = True
    vocab_size = 256
    calls = 0

    def encode(self, text: str) -> list[int]:
        ByteTokenizer.calls += 1
        return list(text.encode("utf-8"))

    def bytes_of(self, token: int) -> bytes:
        return bytes([token])

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode("utf-8", "replace")

    def render(self, messages: Sequence[Message], *, first: bool = True) -> list[int]:
        return self.encode("".join(m.content for m in messages))


class Dying(ByteTokenizer):
    """Ends its process without a word, as when memory has run out."""

    def encode(self, text: str) -> list[int]:
        os._exit(9)
