"""Tokenizers are compared by what they do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import structlog

from rlvr.errors import ConfigError
from rlvr.run.same_tokenizer import check_same_tokenizer
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


def check(student: Any, teacher: Any) -> list[dict[str, Any]]:
    """What was warned of."""
    with structlog.testing.capture_logs() as logs:
        check_same_tokenizer(student, teacher, "teacher t")
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
        (Exact(swapped=False), Exact(swapped=True), "2 of 21 ids differ: id 4 is '\\\\x84' here"),
        (CharTokenizer(LETTERS), Greedy(LETTERS), "the same ids, cut otherwise"),
        (CharTokenizer(), Greedy(), "the same ids, cut otherwise"),
    ],
)
def test_different_ones_are_refused(student: Any, teacher: Any, said: str) -> None:
    """The first ids that differ are shown, both ways round; exact bytes where both know them."""
    with pytest.raises(ConfigError, match=said) as caught:
        check(student, teacher)
    assert "teacher t" in str(caught.value)
    with pytest.raises(ConfigError):
        check(teacher, student)


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
