"""Tokenizers are compared by what they do; a teacher with another one is aligned, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import structlog

from rlvr.errors import ConfigError
from rlvr.run.aligned import AlignedTeacher
from rlvr.run.aligned_fit import in_tokens_of
from rlvr.run.same_tokenizer import difference
from rlvr.testing import TinyTeacher
from rlvr.testing.fakes import CharTokenizer
from rlvr.types import Message

LETTERS = "abcdefghij"


class Padded(CharTokenizer):
    """Some ids more, that stand for nothing."""

    def __init__(self, alphabet: str = LETTERS) -> None:
        super().__init__(alphabet)
        self.vocab_size += 5

    def decode(self, tokens: Sequence[int]) -> str:
        return super().decode([t for t in tokens if t < self.vocab_size - 5])


class Exact(CharTokenizer):
    """Knows the bytes of its ids, which `decode` would not tell apart."""

    def __init__(self, swapped: bool) -> None:
        super().__init__(LETTERS)
        self._swapped = swapped

    def bytes_of(self, token: int) -> bytes:
        return bytes([0x80 + (token ^ 1 if self._swapped and token in (4, 5) else token)])

    def decode(self, tokens: Sequence[int]) -> str:
        return "\ufffd" * len(tokens)

    def encode(self, text: str) -> list[int]:
        return [1] * len(text)


class Greedy(CharTokenizer):
    """Equal ids, but it writes a letter with its second id where a letter stands before it."""

    def encode(self, text: str) -> list[int]:
        ids = super().encode(text)
        return [*ids[:1], *(self.alias(i) for i in ids[1:])]


class Framed(CharTokenizer):
    """Another chat template."""

    def render(self, messages: Sequence[Message], *, first: bool = True) -> list[int]:
        return [1, *(1 for _ in messages)]


class Ending(CharTokenizer):
    """Ends its answers with another token."""

    eos_id = 3


class Plain(CharTokenizer):
    """One that can say anything; a template is a list of the first ids."""

    def render(self, messages: Sequence[Message], *, first: bool = True) -> list[int]:
        return [2 for _ in messages]


class Bytes(CharTokenizer):
    """Knows the bytes of its characters."""

    def bytes_of(self, token: int) -> bytes:
        return self.decode([token]).encode()


def fitted(student: Any, theirs: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The teacher that a run asks, itself under `inner`, and what was warned of."""
    inner = TinyTeacher(name="t")
    inner.tokenizer = theirs
    with structlog.testing.capture_logs() as logs:
        found = in_tokens_of(student, inner)
    return (None if found is inner else found), logs


def check(student: Any, teacher: Any) -> list[dict[str, Any]]:
    """What was warned of where the tokenizer is the same."""
    aligned, logs = fitted(student, teacher)
    assert aligned is None
    return logs


@pytest.mark.parametrize(
    ("student", "teacher"),
    [
        (CharTokenizer(LETTERS), CharTokenizer(LETTERS)),
        (CharTokenizer(), CharTokenizer()),
        (CharTokenizer(LETTERS), Padded()),
        (Padded(), CharTokenizer(LETTERS)),
        (Exact(swapped=False), Exact(swapped=False)),
    ],
)
def test_equal_ones_pass(student: Any, teacher: Any) -> None:
    """Names, objects and rows that pad a vocabulary do not matter."""
    assert check(student, teacher) == []


@pytest.mark.parametrize(
    ("student", "teacher", "said"),
    [
        (CharTokenizer("abc"), CharTokenizer("abd"), "2 of 7 ids differ: id 3 is 'c' here, 'd'"),
        (CharTokenizer("ab"), CharTokenizer("abc"), "5 ids here, 7 there, 4 of 7 ids differ"),
        (Exact(swapped=False), Exact(swapped=True), "2 of 21 ids differ: id 4 is '\\x84' here"),
        (CharTokenizer(LETTERS), Greedy(LETTERS), "the same ids, cut otherwise"),
        (CharTokenizer(), Greedy(), "the same ids, cut otherwise"),
    ],
)
def test_differences_are_shown(student: Any, teacher: Any, said: str) -> None:
    """The first ids that differ, both ways round; exact bytes where both know them."""
    assert said in difference(student, teacher)
    assert difference(teacher, student)


def test_another_tokenizer_without_bytes_is_refused() -> None:
    """Both ways round: whose tokens have no bytes, and what to do."""
    with pytest.raises(ConfigError, match=r"another tokenizer: 2 of 7 ids(.|\n)*the policy's and"):
        fitted(CharTokenizer("abc"), CharTokenizer("abd"))
    with pytest.raises(ConfigError, match="and the teacher's does not say") as caught:
        fitted(Bytes("abc"), CharTokenizer("abd"))
    assert "teacher t" in str(caught.value)
    with pytest.raises(ConfigError, match="and the policy's does not say"):
        fitted(CharTokenizer("abd"), Bytes("abc"))


def test_another_tokenizer_with_bytes_is_aligned() -> None:
    """Said once, with how many texts both have a token for: 2 of 3, and 2 of 4."""
    aligned, (line,) = fitted(Bytes("abc"), Bytes("bcde"))

    assert isinstance(aligned, AlignedTeacher)
    assert (line["event"], line["log_level"]) == ("teacher_aligned_by_bytes", "warning")
    assert (line["shared"], line["of_policy"], line["of_teacher"]) == (2, 0.6667, 0.5)
    assert "7 ids here, 9 there" in line["differs"]


def test_alphabets_that_do_not_meet_are_refused() -> None:
    """No token of one is a token of the other: nothing could be learnt."""
    with pytest.raises(ConfigError, match="none of its 2 texts is one of the policy's 3"):
        fitted(Bytes("abc"), Bytes("de"))


@pytest.mark.parametrize(
    ("teacher", "differs"),
    [
        (Framed(LETTERS), ["the chat template"]),
        (Ending(LETTERS), ["the token that ends an answer"]),
    ],
)
def test_another_frame_is_said_once(teacher: Any, differs: list[str]) -> None:
    """Ids mean the same, so the run goes on; that its logprobs may be biased is told."""
    student = Plain(LETTERS)
    if isinstance(teacher, Ending):
        student.decode = teacher.decode = lambda tokens: "".join(map(chr, tokens))  # type: ignore[method-assign]
        teacher.render = student.render  # type: ignore[method-assign]

    (line,) = check(student, teacher)

    assert (line["event"], line["differs"]) == ("teacher_reads_otherwise", differs)
    assert line["log_level"] == "warning"
