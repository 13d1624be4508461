"""Whether two tokenizers can be aligned by bytes, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from rlvr import BuildContext, ConfigError
from rlvr.testing import CharTokenizer, TinyTeacher
from rlvr_distill.cross_tokenizer.choose import adapt
from rlvr_distill.cross_tokenizer.teacher import AlignedTeacher


class Bytes(CharTokenizer):
    """Knows the bytes of its characters."""

    has_bytes = True

    def bytes_of(self, token: int) -> bytes:
        return self.decode([token]).encode()


def fitted(student: Any, theirs: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The teacher in the student's tokens, and what was warned of."""
    inner = TinyTeacher(name="t")
    inner.tokenizer = theirs
    context = BuildContext(inner=inner, tokenizer=student, notes={"differs": "ids"})
    with structlog.testing.capture_logs() as logs:
        return adapt(None, context), logs


def test_another_tokenizer_without_bytes_is_refused() -> None:
    """Both ways round: whose tokens have no bytes, and what to do."""
    with pytest.raises(ConfigError, match=r"another tokenizer: ids(.|\n)*the policy's and"):
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
    assert line["differs"] == "ids"


def test_alphabets_that_do_not_meet_are_refused() -> None:
    """No token of one is a token of the other: nothing could be learnt."""
    with pytest.raises(ConfigError, match="none of its 2 texts is one of the policy's 3"):
        fitted(Bytes("abc"), Bytes("de"))
