"""Tokens and masks: against a byte-by-byte oracle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr import ConfigError, Message, Tokenizer, fingerprint
from rlvr_sad.tokens import tokenise
from rlvr_sad.trajectory import CODES, TYPES, AgentTrajectory, SpanType
from rlvr_sad.trajectory_builder import Piece, TrajectoryBuilder


class Chunks(Tokenizer):
    """Tokens of 1 to 4 bytes, cut by the bytes themselves: they straddle spans and characters."""

    eos_id = 0
    has_bytes = True

    def __init__(self, sizes: tuple[int, ...] = (3, 1, 4, 2)) -> None:
        self.sizes = sizes
        self.table: list[bytes] = [b""]
        self.vocab_size = 1

    def encode(self, text: str) -> list[int]:
        data, at, ids = text.encode("utf-8"), 0, []
        while at < len(data):
            piece = data[at : at + self.sizes[len(ids) % len(self.sizes)]]
            if piece not in self.table:
                self.table.append(piece)
                self.vocab_size += 1
            ids.append(self.table.index(piece))
            at += len(piece)
        return ids

    def bytes_of(self, token: int) -> bytes:
        return self.table[token]

    def decode(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self.bytes_of, tokens)).decode("utf-8", "replace")

    def render(self, messages: Sequence[Message], *, first: bool = True) -> list[int]:
        return self.encode("".join(m.content for m in messages))


def trajectory(*pieces: tuple[SpanType, str]) -> AgentTrajectory:
    """A trajectory of these pieces."""
    draft = TrajectoryBuilder()
    draft.extend(Piece(kind, text) for kind, text in pieces)
    return draft.build(id="0", format="test", source="", line=1)


def oracle(one: AgentTrajectory, tokenizer: Chunks) -> list[str]:
    """Type of each token, by counting its bytes: the first one's, unless a later has over half."""
    per_byte = [s.type for s in one.segments for _ in s.text.encode("utf-8")]
    segment = [i for i, s in enumerate(one.segments) for _ in s.text.encode("utf-8")]
    types, at = [], 0
    for token in tokenizer.encode(one.text):
        size = len(tokenizer.bytes_of(token))
        own = segment[at : at + size]
        later = [i for i in set(own) if i != own[0] and 2 * own.count(i) > size]
        chosen = later[0] if later else own[0]
        types.append(per_byte[at + own.index(chosen)])
        at += size
    return types


_PIECES = st.lists(
    st.tuples(st.sampled_from(TYPES), st.text("aé雪 \n", min_size=2, max_size=9)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pieces=_PIECES, sizes=st.permutations([1, 2, 3, 4]))
def test_each_token_has_the_type_of_most_of_its_bytes(
    pieces: list[tuple[SpanType, str]], sizes: list[int]
) -> None:
    """Tokens of up to four bytes over spans of two or more: the oracle's types, and its masks."""
    tokenizer = Chunks(tuple(sizes))
    one = trajectory(*pieces)
    expected = oracle(one, tokenizer)
    fresh = Chunks(tuple(sizes))
    fresh.encode(one.text)
    tokens = tokenise(one, fresh)

    assert [TYPES[code] for code in tokens.types] == expected
    assert tokens.mask.tolist() == [
        index > 0 and kind in ("reasoning", "action") for index, kind in enumerate(expected)
    ]
    assert tokens.ids.dtype == np.int32


def test_a_hand_worked_boundary() -> None:
    """`ab|cd`: one byte of two is not more than half; two bytes of three are."""
    even = Chunks((1, 2, 1))  # a|bc|d with the boundary between b and c
    odd = Chunks((1, 3))  # a|bcd
    pieces: list[tuple[SpanType, str]] = [("observation", "ab"), ("action", "cd")]

    for tokenizer in (even, odd):
        tokenizer.encode("abcd")
    assert tokenise(trajectory(*pieces), even).types.tolist() == [
        CODES["observation"],
        CODES["observation"],
        CODES["action"],
    ]
    assert tokenise(trajectory(*pieces), odd).types.tolist() == [
        CODES["observation"],
        CODES["action"],
    ]


def test_a_token_over_three_spans_without_a_majority() -> None:
    """Half of its bytes are not more than half: it belongs to the span it begins in."""
    tokenizer = Chunks((4,))
    tokenizer.encode("abcd")
    pieces: list[tuple[SpanType, str]] = [("other", "a"), ("action", "bc"), ("other", "d")]

    assert tokenise(trajectory(*pieces), tokenizer).types.tolist() == [CODES["other"]]


def test_the_first_token_is_never_learnt() -> None:
    """Nothing predicts it."""
    tokenizer = Chunks((1,))
    tokenizer.encode("abc")
    tokens = tokenise(trajectory(("action", "abc")), tokenizer)

    assert tokens.mask.tolist() == [False, True, True]


def test_an_empty_trajectory_has_no_tokens() -> None:
    """Arrays of length 0, of the right kinds."""
    tokens = tokenise(trajectory(), Chunks())

    assert tokens.ids.shape == tokens.types.shape == tokens.mask.shape == (0,)


def test_a_tokenizer_that_changes_the_text_is_refused() -> None:
    """Offsets would be wrong from there on: the place is named."""

    class Lower(Chunks):
        def encode(self, text: str) -> list[int]:
            return super().encode(text.replace("x", ""))

    tokenizer = Lower((1,))
    tokenizer.encode("abc")

    with pytest.raises(ConfigError, match=r"spell b'b.*byte 1"):
        tokenise(trajectory(("action", "axb")), tokenizer)


def test_a_tokenizer_without_bytes_is_refused() -> None:
    """It is said what is missing."""
    from rlvr.testing.fakes import CharTokenizer

    with pytest.raises(ConfigError, match="CharTokenizer does not say the bytes"):
        tokenise(trajectory(("action", "abc")), CharTokenizer())  # type: ignore[arg-type]


def test_fingerprints_tell_tokenizers_apart() -> None:
    """By content: equal tables are equal, another cut or another token is another print."""
    same, other = Chunks((1,)), Chunks((2,))

    assert fingerprint(Chunks((1,))) == fingerprint(same)
    assert fingerprint(same) != fingerprint(other)
