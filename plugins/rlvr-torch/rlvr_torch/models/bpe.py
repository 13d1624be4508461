"""Byte-level BPE: any text has token ids, and any token ids have bytes.

Built on the `tokenizers` library. One special token, `<|endoftext|>`, ends a text. It is never
produced by `encode`, not even from a text that spells it: append `eos_id` yourself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from rlvr import BackendError, ByteLevel, Message, Tokenizer, byte_table

END_OF_TEXT = "<|endoftext|>"


class BytePairTokenizer(Tokenizer):
    """
    The `rlvr.parts.Tokenizer` of GPT-2 models.

    Attributes:
        eos_id: Id of `<|endoftext|>`.
        vocab_size: One more than the largest id.
        chat_template: GPT-2 has none.
    """

    has_bytes = True
    can_save = True
    chat_template = None

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        eos = inner.token_to_id(END_OF_TEXT)
        if eos is None:
            raise BackendError(
                f"the tokenizer has no {END_OF_TEXT!r} token: GPT-2 models need it to end a text"
            )
        inner.encode_special_tokens = True  # a text that spells a special token is plain text
        inner.no_padding()
        inner.no_truncation()
        self._inner = inner
        self.eos_id: int = eos
        self._bytes = byte_table(inner, ByteLevel())
        self.vocab_size = len(self._bytes)

    @classmethod
    def train(
        cls, texts: Iterable[str], vocab_size: int, min_frequency: int = 2
    ) -> BytePairTokenizer:
        """
        Learn merges from texts.

        `vocab_size` counts the 256 bytes and the end-of-text token; fewer are learned when the
        texts hold no more pairs that occur `min_frequency` times.
        """
        inner = _byte_level(models.BPE())
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            special_tokens=[END_OF_TEXT],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        inner.train_from_iterator(texts, trainer)
        return cls(inner)

    @classmethod
    def bytes_only(cls) -> BytePairTokenizer:
        """257 tokens: `<|endoftext|>` and each byte. Needs no training and no file."""
        return cls.train([], vocab_size=257)

    @classmethod
    def load(cls, path: Path) -> BytePairTokenizer:
        """
        Read `tokenizer.json`, or GPT-2's `vocab.json` with `merges.txt`, from a file or directory.

        Raises:
            BackendError: There are no such files, or they hold no byte-level BPE.
        """
        vocab, merges = path / "vocab.json", path / "merges.txt"
        try:
            file = path / "tokenizer.json" if path.is_dir() else path
            if file.is_file():
                return cls(tokenizers.Tokenizer.from_file(str(file)))
            if vocab.is_file() and merges.is_file():
                inner = _byte_level(models.BPE.from_file(str(vocab), str(merges)))
                inner.add_special_tokens([END_OF_TEXT])
                return cls(inner)
        except BackendError as error:
            raise BackendError(f"{path}: {error}") from None
        except Exception as error:  # the Rust library raises bare Exception for unreadable files
            raise BackendError(f"{path} is not a readable tokenizer: {error}") from error
        raise BackendError(
            f"no tokenizer in {path}: expected tokenizer.json, or vocab.json with merges.txt"
        )

    def save(self, directory: Path) -> None:
        # Its own save raises a bare Exception on a full disk.
        (directory / "tokenizer.json").write_text(self._inner.to_str(pretty=True), "utf-8")

    def encode(self, text: str) -> list[int]:
        return self._inner.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of many texts (several threads)."""
        return [e.ids for e in self._inner.encode_batch(list(texts), add_special_tokens=False)]

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of the ids; bytes that are not UTF-8 become U+FFFD. End-of-text is spelled out."""
        return self.decode_bytes(tokens).decode("utf-8", errors="replace")

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        """The exact bytes of the ids; an id outside the vocabulary has none."""
        return b"".join(map(self.bytes_of, tokens))

    def bytes_of(self, token: int) -> bytes:
        """The exact bytes of one id, which may be part of a character."""
        return self._bytes[token] if 0 <= token < self.vocab_size else b""

    def render(self, messages: Sequence[Message], *, first: bool = True) -> list[int]:
        """
        Token ids of a prompt for a base model, which has no chat template.

        The contents are joined by newlines and nothing is appended: the completion starts right
        after the last character, so a prompt that wants a fresh line ends with a newline itself.
        A later turn begins with a newline, which sets it apart from what the policy wrote.
        """
        text = "\n".join(message.content for message in messages)
        return self.encode(text if first else "\n" + text)


def _byte_level(model: models.Model) -> tokenizers.Tokenizer:
    inner = tokenizers.Tokenizer(model)
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return inner
