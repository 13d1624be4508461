"""The tokenizer beside a teacher's answers: kept with them, so that a folder stands by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlvr import (
    ByteLevel,
    ConfigError,
    FastTokenizer,
    Message,
    PrerequisiteError,
    Tokenizer,
    byte_table,
    pip_install,
)


def keep_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """
    Write a tokenizer into a folder.

    Raises:
        ConfigError: It cannot be written (`can_save` is False).
    """
    if not tokenizer.can_save:
        raise ConfigError(
            "the student's tokenizer was to be kept beside the teacher's answers.",
            f"found: {type(tokenizer).__name__} cannot be saved",
            "use a model of gpt2:PATH or hf:PATH",
        )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder)


def kept_tokenizer(folder: Path) -> Tokenizer:
    """
    The tokenizer of a folder.

    Raises:
        PrerequisiteError: The library that reads it is not installed.
        ConfigError: There is none, or it cannot be read.
    """
    try:
        if (folder / "tokenizer_config.json").is_file():
            from transformers import AutoTokenizer

            return FastTokenizer(AutoTokenizer.from_pretrained(str(folder)), name=str(folder))
        return BytePairs(folder / "tokenizer.json")
    except ImportError as error:
        raise PrerequisiteError(
            f"the tokenizer in {folder} was to be read.",
            f"found: {error.name} is not installed",
            f"do: {pip_install(error.name or 'transformers')}",
        ) from error
    except Exception as error:  # transformers and its Rust library raise many kinds
        raise ConfigError(
            f"the tokenizer in {folder} was to be read.",
            f"found: {type(error).__name__}: {error}",
            "make the answers anew, in another folder",
        ) from error


class BytePairs(Tokenizer):
    """The tokenizer of `gpt2:` models, which are base models: bytes, and no template."""

    has_bytes = True

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer as Inner

        self._inner = Inner.from_file(str(path))
        self._inner.encode_special_tokens = True
        self._bytes = byte_table(self._inner, ByteLevel())
        self.vocab_size = len(self._bytes)
        self.eos_id: int = self._inner.get_vocab()["<|endoftext|>"]

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; nothing is added."""
        return self._inner.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of the ids; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(map(self.bytes_of, tokens)).decode("utf-8", errors="replace")

    def bytes_of(self, token: int) -> bytes:
        return self._bytes[token] if 0 <= token < self.vocab_size else b""

    def render(self, messages: Sequence[Message], *, first: bool = True) -> list[int]:
        """The contents, joined by newlines."""
        text = "\n".join(message.content for message in messages)
        return self.encode(text if first else "\n" + text)
