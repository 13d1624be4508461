"""The bytes of each token id, for the two ways tokenizers spell them.

Texts are cut from generated tokens anywhere, also within a character, so bytes are what is exact:
the text of two token lists joined is the two texts joined. Library decoders do not promise that
(SentencePiece's drops the space before a text's first word).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from rlvr.errors import BackendError

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_of_character() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 stands for itself, the rest begins at U+0100."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in set(plain)]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


Speller: TypeAlias = Callable[[str], bytes]
"""The bytes that a token's name stands for."""


def byte_table(inner: Any, spell: Speller | None = None) -> list[bytes]:
    """
    The bytes of ids 0, 1, ...; an added token's are its spelling, an unused id has none.

    `inner` is a `tokenizers.Tokenizer`. `spell` None: as its own decoder says.

    Raises:
        BackendError: The tokenizer is neither byte-level nor like SentencePiece.
    """
    added = {i: token.content for i, token in inner.get_added_tokens_decoder().items()}
    vocab = inner.get_vocab(with_added_tokens=True)
    spell = spell or _speller(inner)
    table = [b""] * (max(vocab.values(), default=-1) + 1)
    for token, index in vocab.items():
        table[index] = added[index].encode() if index in added else spell(token)
    return table


class ByteLevel:
    """Each character of a token stands for one byte (GPT-2, Llama 3, Qwen, gpt-oss)."""

    def __init__(self) -> None:
        self._alphabet = byte_of_character()

    def __call__(self, token: str) -> bytes:
        try:
            return bytes(self._alphabet[character] for character in token)
        except KeyError:
            raise BackendError(f"token {token!r} is not byte-level BPE") from None


def _sentence_piece(token: str) -> bytes:
    """U+2581 stands for a space, `<0x0A>` for a byte (Llama 2, Mistral, Gemma)."""
    byte = _BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("\u2581", " ").encode()


def _speller(inner: Any) -> Speller:
    decoder = json.loads(inner.to_str())["decoder"] or {"decoders": []}
    parts = decoder.get("decoders", [decoder])
    kinds = [part["type"] for part in parts]
    if "ByteLevel" in kinds:
        return ByteLevel()
    spaced = {"String": "\u2581"}
    if any(p["type"] == "Metaspace" or p.get("pattern") == spaced for p in parts):
        return _sentence_piece
    raise BackendError(
        "tokens must have exact bytes\n"
        f"  found: a tokenizer that decodes by {' and '.join(kinds) or 'nothing'}\n"
        "  supported: byte-level BPE, and SentencePiece's BPE and unigram"
    )
