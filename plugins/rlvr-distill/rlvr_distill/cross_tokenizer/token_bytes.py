"""The bytes of a tokenizer's tokens, and the tokens that spell given bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from rlvr import Tokenizer

_ESCAPED = re.compile("([\udc80-\udcff]+)")
"""Bytes that are not UTF-8, as `surrogateescape` decodes them."""


@frozen(eq=False)
class Encoded:
    """
    Bytes as tokens, every array (m,).

    Attributes:
        ids: -1 where no token stands for the bytes.
        lengths: Bytes of each; they sum to those of the whole.
        missing: Whether they are not to be compared: no token, or a control token's spelling.
    """

    ids: NDArray[np.int64]
    lengths: NDArray[np.int64]
    missing: NDArray[np.bool_]


class TokenBytes:
    """
    The bytes of a vocabulary.

    Control tokens stand for no text. A tokenizer names them (`control_ids`); one that does not has
    those that end a text.

    Attributes:
        tokenizer: The one whose tokens they are; its bytes are exact (`Tokenizer.has_bytes`).
        controls: Ids of its control tokens.
        ends: Those that end an answer; `tokenizer.eos_id` first.
        lengths: (V,) bytes of each id; 0 for a control token.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._bytes = [tokenizer.bytes_of(i) for i in range(tokenizer.vocab_size)]
        self.ends = tuple(dict.fromkeys([tokenizer.eos_id, *sorted(tokenizer.ends)]))
        self.controls = tokenizer.control_ids | frozenset(self.ends)
        self.lengths = np.array([len(spelled) for spelled in self._bytes], np.int64)
        self.lengths[[i for i in self.controls if i < len(self.lengths)]] = 0
        self._ids: dict[bytes, int] = {}
        for index in reversed(range(len(self._bytes))):  # of equal ones the first counts
            if self.lengths[index]:
                self._ids[self._bytes[index]] = index
        self._longest_cut = max((len(s) for s in self._ids if not _is_text(s)), default=0)
        self._spelt: dict[str, bool] = {}

    @property
    def texts(self) -> frozenset[bytes]:
        return frozenset(self._ids)

    def bytes_of(self, token: int) -> bytes:
        """The bytes of an id (of a control token: its name); empty outside the vocabulary."""
        return self._bytes[token] if 0 <= token < len(self._bytes) else b""

    def id_of(self, spelled: bytes) -> int | None:
        return self._ids.get(spelled)

    def lengths_of(self, ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """Bytes of ids (n,); 0 outside the vocabulary, too."""
        known = (ids >= 0) & (ids < len(self.lengths))
        return np.asarray(np.where(known, self.lengths[np.where(known, ids, 0)], 0))

    def encode(self, raw: bytes) -> Encoded:
        """
        Bytes as the tokenizer cuts them; what it cannot spell is a gap.

        Texts are cut by the tokenizer itself. Bytes that are no text (an answer that ends within a
        character) become the longest tokens that there are.
        """
        parts = _ESCAPED.split(raw.decode("utf-8", "surrogateescape"))
        found: list[tuple[int, int, bool]] = []
        for number, part in enumerate(parts):
            found += self._cut(part) if number % 2 else self._text(part)
        ids, lengths, missing = zip(*found, strict=True) if found else ((), (), ())
        return Encoded(
            np.array(ids, np.int64), np.array(lengths, np.int64), np.array(missing, bool)
        )

    def _text(self, text: str) -> Iterator[tuple[int, int, bool]]:
        if not text:
            return
        runs = [(text, self._faithful(text))]
        if runs[0][1] is None:
            parts = ((is_spelt, "".join(run)) for is_spelt, run in groupby(text, self._spells))
            runs = [(run, self._faithful(run) if is_spelt else None) for is_spelt, run in parts]
        for run, ids in runs:
            if ids is None:
                yield -1, len(run.encode()), True
            for index in ids or ():
                yield index, len(self._bytes[index]), index in self.controls

    def _cut(self, escaped: str) -> Iterator[tuple[int, int, bool]]:
        raw = escaped.encode("utf-8", "surrogateescape")
        at = 0
        while at < len(raw):
            for length in range(min(self._longest_cut, len(raw) - at), 0, -1):
                index = self._ids.get(raw[at : at + length])
                if index is not None:
                    break
            else:
                index, length = -1, 1
            yield index, length, index < 0
            at += length

    def _faithful(self, text: str) -> list[int] | None:
        """Ids whose bytes are the text's; None where the tokenizer changes or refuses it."""
        try:
            ids: list[int] = list(self.tokenizer.encode(text))
        except ValueError:  # a tokenizer of few characters
            return None
        return ids if b"".join(map(self.bytes_of, ids)) == text.encode() else None

    def _spells(self, character: str) -> bool:
        if character not in self._spelt:
            self._spelt[character] = self._faithful(character) is not None
        return self._spelt[character]


def _is_text(spelled: bytes) -> bool:
    try:
        spelled.decode()
    except UnicodeDecodeError:
        return False
    return True
