"""ReAct: lines that begin with `Thought 1:`, `Action 1:`, `Observation 1:`, or without numbers.

Yao et al., ReAct (arXiv:2210.03629). A numbered marker counts only where it is the next step, so
an `Action 7:` that an observation quotes is a part of the observation. Without numbers the same
holds as far as it can: after an action an observation follows, and only a thought, an action or an
answer ends that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from attrs import frozen

from rlvr_sad.trajectory import SpanType
from rlvr_sad.trajectory_builder import AUTHOR, Piece

_HEADERS = frozenset({"question", "claim", "context"})
_KIND: dict[str, SpanType] = {
    **dict.fromkeys(("thought", "thoughts", "reasoning"), "reasoning"),
    **dict.fromkeys(("action", "action input", "act", "answer", "final answer"), "action"),
    **dict.fromkeys(_HEADERS, "other"),
    "observation": "observation",
}
_MARK = re.compile(
    r"^[ \t]*(?:\*\*|#{1,4} )?"
    r"(?P<word>thoughts?|reasoning|action input|action|act|final answer|answer|observation"
    r"|question|claim|context)"
    r"(?:[ \t]+(?P<n>\d+))?[ \t]*(?:\*\*)?:",
    re.IGNORECASE | re.MULTILINE,
)


@frozen
class _Mark:
    start: int
    word: str
    number: int | None

    @property
    def type(self) -> SpanType:
        return _KIND[self.word]


def marks_of(text: str) -> list[_Mark]:
    """All lines that look like a marker, in order."""
    return [
        _Mark(m.start(), m["word"].lower(), int(m["n"]) if m["n"] else None)
        for m in _MARK.finditer(text)
        if m["word"][0].isupper()
    ]


def is_numbered(text: str) -> bool:
    """True where steps are counted: at least one numbered action, or thought and observation."""
    words = {mark.word for mark in marks_of(text) if mark.number is not None}
    return "action" in words or {"thought", "observation"} <= words


def is_plain(text: str) -> bool:
    """True where a text has unnumbered thoughts with actions or answers, or question and answer."""
    words = {mark.word for mark in marks_of(text) if mark.number is None}
    acts = words & {"action", "act", "answer", "final answer"}
    thinks = words & {"thought", "thoughts", "reasoning"}
    return bool(
        (acts and thinks)
        or ("action" in words and "observation" in words)
        or (acts and words & _HEADERS)
    )


def is_question(text: str) -> bool:
    """True where a text begins with a question and goes no further: nothing was done yet."""
    marks = marks_of(text)
    begins = bool(marks) and marks[0].word in _HEADERS and not text[: marks[0].start].strip()
    return begins and all(mark.word in _HEADERS for mark in marks)


def split(text: str) -> list[Piece]:
    """The text cut at the markers that count; what stands before the first is `other`."""
    marks = list(_steps(text) if is_numbered(text) else _alternating(text))
    return cut(text, [(mark.start, mark.type) for mark in marks])


def cut(text: str, starts: list[tuple[int, SpanType]]) -> list[Piece]:
    """Pieces that begin at these places; `other` before the first."""
    if not starts or starts[0][0] > 0:
        starts = [(0, "other"), *starts]
    ends = [start for start, _ in starts[1:]] + [len(text)]
    return [
        Piece(kind, text[start:end], AUTHOR[kind])
        for (start, kind), end in zip(starts, ends, strict=True)
        if end > start
    ]


def episodes(text: str) -> list[str]:
    """
    The episodes of a prompt or a log: each begins with the word that the first one begins with.

    Where steps are counted, an episode begins only where the count begins again after it.
    """
    marks = marks_of(text)
    first = next((mark.word for mark in marks if mark.word in _HEADERS), "")
    starts = []
    following: _Mark | None = None
    for mark in reversed(marks):
        if mark.word not in _HEADERS:
            following = mark
        elif mark.word == first and (following is None or following.number in (None, 1)):
            starts.append(mark.start)
    starts.reverse()
    if len(starts) < 2:
        return [text]
    return [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]


def _steps(text: str) -> Iterator[_Mark]:
    """The numbered markers that continue the count."""
    numbered = [m for m in marks_of(text) if m.number is not None or m.word in _HEADERS]
    step = 1 if any(m.number == 1 for m in numbered) else None
    last = "observation"  # what the last marker was; a first thought or action follows one
    begins_again = _begin_again(numbered)
    for mark in numbered:
        if mark.number is None:  # a header: the next episode, where the count begins again
            if mark.start in begins_again:
                step, last = 1, "observation"
                yield mark
            continue
        if step is None:
            step = mark.number
        if mark.type == "other":
            continue
        if last == "observation":
            counts = mark.type != "observation" and mark.number == step
        elif mark.type == "observation":
            counts = mark.number == step
        elif last == "reasoning":
            counts = mark.type == "action" and mark.number == step
            if mark.type == "reasoning" and mark.number == step + 1:  # it thought, and did nothing
                counts, step = True, step + 1
        else:  # after an action: its input, or the next step where no observation came back
            counts = mark.type == "action" and mark.number == step
            if mark.number == step + 1:
                counts, step = True, step + 1
        if not counts:
            continue
        yield mark
        last = mark.type
        if last == "observation":
            step += 1


def _begin_again(numbered: list[_Mark]) -> set[int]:
    """The places of headers after which the count begins at 1."""
    found: set[int] = set()
    after: _Mark | None = None
    for mark in reversed(numbered):
        if mark.number is not None:
            after = mark
        elif after is not None and after.number == 1 and after.type != "observation":
            found.add(mark.start)
    return found


def _alternating(text: str) -> Iterator[_Mark]:
    """The unnumbered markers that can follow one another."""
    last = ""
    for mark in marks_of(text):
        if mark.number is not None:
            continue
        if mark.word in _HEADERS:
            is_apart = text[: mark.start].endswith("\n\n")
            counts = last in ("", "answer", "other") or (last == "observation" and is_apart)
        elif mark.word == "action input":
            counts = last == "action"
        elif mark.type == "observation":
            counts = last in ("action", "reasoning")
        else:
            counts = True
        if counts:
            yield mark
            last = "answer" if mark.word.endswith("answer") else mark.type
