"""Bytes as a tokenizer's tokens: texts, halves of characters, and what it cannot spell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.testing.fakes import CharTokenizer
from rlvr_distill.cross_tokenizer.token_bytes import TokenBytes
from rlvr_distill.cross_tokenizer.vocabulary_map import VocabularyMap

MERGES = [(b"a", b"b"), (b"ab", b"c"), (b"\xc3", b"\xa9"), (b"\xe2", b"\x82")]


class Exact(CharTokenizer):
    """Knows the bytes of its ids."""

    has_bytes = True

    def bytes_of(self, token: int) -> bytes:
        return b"" if token == self.eos_id else self.decode([token]).encode()


class Tidy(Exact):
    """Changes texts as SentencePiece's normaliser does: two blanks become one."""

    def encode(self, text: str) -> list[int]:
        return super().encode(text.replace("  ", " "))


def spelled(tokenizer: Any, raw: bytes) -> list[bytes]:
    """What each token of the bytes stands for, gaps as `?` and their length."""
    found = TokenBytes(tokenizer).encode(raw)
    return [
        tokenizer.bytes_of(i) if i >= 0 else b"?%d" % n
        for i, n in zip(found.ids.tolist(), found.lengths.tolist(), strict=True)
    ]


def test_texts_are_cut_by_the_tokenizer(pairs: Any) -> None:
    """Exactly as its `encode` says."""
    assert spelled(pairs(MERGES), "abcé ab".encode()) == [b"abc", b"\xc3\xa9", b" ", b"ab"]


def test_halves_of_characters_are_the_longest_tokens(pairs: Any) -> None:
    """The euro sign without its last byte, at an answer's end and between two texts."""
    tokenizer = pairs(MERGES)

    assert spelled(tokenizer, b"ab\xe2\x82") == [b"ab", b"\xe2\x82"]
    assert spelled(tokenizer, b"\xa9ab\xff\xc3ab") == [b"\xa9", b"ab", b"\xff", b"\xc3", b"ab"]


@given(st.binary(max_size=40))
def test_any_bytes_are_spelt(pairs: Any, raw: bytes) -> None:
    """A tokenizer with all bytes has tokens for everything, in order."""
    assert b"".join(spelled(pairs(MERGES), raw)) == raw


def test_what_cannot_be_spelt_is_a_gap() -> None:
    """Of a tokenizer of few characters; what stands around it is cut as it is."""
    assert spelled(Exact("ab"), "abéba\xff".encode()) == [b"a", b"b", b"?2", b"b", b"a", b"?2"]
    assert spelled(Exact("ab"), b"a\xff\xfeb") == [b"a", b"?1", b"?1", b"b"]


def test_a_tokenizer_that_changes_texts_is_found_out() -> None:
    """Where characters alone are faithful and the text is not, nothing is claimed."""
    assert spelled(Tidy("ab "), b"a b") == [b"a", b" ", b"b"]
    assert spelled(Tidy("ab "), b"a  b") == [b"?4"]


def test_a_control_token_is_no_text(pairs: Any) -> None:
    """It has no bytes to align; its name written out is text, cut as such."""
    spelling = TokenBytes(pairs(MERGES, ["<end>", "<x>"]))

    assert spelling.lengths[:3].tolist() == [0, 0, 1]
    assert spelling.id_of(b"<x>") is None
    assert [i > 1 for i in spelling.encode(b"<x>").ids] == [True] * 3


def test_a_name_that_becomes_a_control_token_is_not_compared(pairs: Any) -> None:
    """A tokenizer whose `encode` knows names (`<think>`) reads them, and is not asked of them."""

    class Named(pairs):  # type: ignore[misc]
        def encode(self, text: str) -> list[int]:
            before, name, after = text.partition("<x>")
            return [*super().encode(before), *([1] if name else []), *super().encode(after)]

    found = TokenBytes(Named(MERGES, ["<end>", "<x>"])).encode(b"ab<x>ab")

    assert found.lengths.tolist() == [2, 3, 2]
    assert found.missing.tolist() == [False, True, False]


def test_of_equal_tokens_the_first_counts() -> None:
    """Two ids that spell the same are one text."""
    assert TokenBytes(Exact("xy")).id_of(b"y") == 2


def test_ids_outside_the_vocabulary_have_no_bytes(pairs: Any) -> None:
    """Rows that only pad a model."""
    tokenizer = pairs(MERGES)
    spelling = TokenBytes(tokenizer)

    ids = np.array([-1, tokenizer.vocab_size, 2])
    assert spelling.lengths_of(ids).tolist() == [0, 0, 1]
    assert spelling.bytes_of(tokenizer.vocab_size) == b""


@pytest.mark.parametrize("beyond", [-1, 0, 7])
def test_an_id_outside_their_vocabulary_is_none(pairs: Any, beyond: int) -> None:
    """Below it, the first one above it and others: no token, and nothing is left over."""
    theirs, ours = TokenBytes(pairs([(b"a", b"b")])), TokenBytes(pairs())
    token = -1 if beyond < 0 else theirs.tokenizer.vocab_size + beyond

    found = VocabularyMap(theirs, ours).rows(np.array([[token]]), np.array([[0.0]]))

    assert found.ids.tolist() == [[-1]]
    assert found.unmatched.tolist() == [0.0]
