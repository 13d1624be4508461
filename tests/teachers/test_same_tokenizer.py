"""Tokenizers are compared by what they do; a teacher with another one is aligned, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from rlvr import BuildContext, Message, PluginError, Teacher, TeacherSpec
from rlvr.assembly import build_part
from rlvr.assembly.teachers import in_tokens_of
from rlvr.teachers.same_tokenizer import difference
from rlvr.testing import TinyTeacher
from rlvr.testing.fakes import CharTokenizer

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

    has_bytes = True

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

    has_bytes = True

    def bytes_of(self, token: int) -> bytes:
        return self.decode([token]).encode()


def fitted(student: Any, theirs: Any, *adapters: TeacherSpec) -> tuple[Any, list[dict[str, Any]]]:
    """The teacher that a run asks in place of this one, and what was warned of."""
    configured: Any = SimpleNamespace(host=SimpleNamespace(teachers=lambda: adapters))
    inner = TinyTeacher(name="t")
    inner.tokenizer = theirs
    with structlog.testing.capture_logs() as logs:
        found = in_tokens_of(configured, student, inner)
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


def test_another_tokenizer_without_an_adapter_is_refused() -> None:
    """What differs, and what to install."""
    with pytest.raises(PluginError, match=r"another tokenizer: 2 of 7 ids(.|\n)*rlvr-distill"):
        fitted(CharTokenizer("abc"), CharTokenizer("abd"))
    with pytest.raises(PluginError, match=r"2 plugins adapt it: one, two(.|\n)*RLVR_DISABLE"):
        fitted(CharTokenizer("abc"), CharTokenizer("abd"), adapter("one"), adapter("two"))


def adapted(config: None, context: BuildContext) -> Teacher:
    """A teacher named after what the adapter was told."""
    found = TinyTeacher(name=f"{context.inner.name}: {context.notes['differs']}")
    found.tokenizer = context.tokenizer
    return found


def adapter(provider: str) -> TeacherSpec:
    return TeacherSpec(name="a", target=f"{__name__}:adapted", adapts=True, provider=provider)


def test_another_tokenizer_is_adapted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the only plugin that does so; it is told teacher, tokenizer and difference."""
    monkeypatch.setattr(build_part, "load_object", lambda *_: adapted)
    student = CharTokenizer("abc")
    found, logs = fitted(student, CharTokenizer("abd"), adapter("one"))
    assert found.name.startswith("t: 2 of 7 ids differ")
    assert found.tokenizer is student
    assert logs == []


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
