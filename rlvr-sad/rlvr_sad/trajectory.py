"""One structured trajectory: ordered segments that say who wrote what, and what it is.

The text of a trajectory is the texts of its segments, one after the other; nothing is between
them. Offsets are in bytes of its UTF-8 form, since that is what tokens are made of; `spans` gives
them in characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Literal

from attrs import field, frozen

SpanType = Literal["other", "reasoning", "action", "observation"]

TYPES: tuple[SpanType, ...] = ("other", "reasoning", "action", "observation")
"""The four types; the position of each is its code in arrays."""

TRAINED: frozenset[SpanType] = frozenset({"reasoning", "action"})
"""Types of the model's own text. Prompts, templates and the environment are never learnt."""

CODES: Mapping[str, int] = {name: code for code, name in enumerate(TYPES)}
"""Type to its code."""


@frozen(kw_only=True)
class Media:
    """A picture, film or sound that stands at a place in the text; `source` is a path or URL."""

    kind: str
    source: str


@frozen(kw_only=True)
class Segment:
    """
    A stretch of text by one author, of one type.

    Attributes:
        role: Who wrote it: system, user, assistant, tool.
        start: First byte in the trajectory's text.
        end: One past the last byte.
        media: What a placeholder stands for.
    """

    role: str
    type: SpanType
    text: str
    start: int
    end: int
    media: Media | None = None


@frozen(kw_only=True)
class Span:
    """A stretch of characters of one type."""

    start: int
    end: int
    type: SpanType


@frozen(kw_only=True)
class AgentTrajectory:
    """
    The observations, thoughts and actions of an agent, in order.

    Attributes:
        id: Its record in the file: a key, or the position; `key#2` where a record holds several.
        format: Name of the format it was read as.
        source: The file it comes from.
        line: Line of that file at which its record begins (1-based).
        labels: What the record says about it: id, reward, task, model (JSON values).
        notes: What a person should know before training on it.
    """

    id: str
    format: str
    segments: tuple[Segment, ...]
    source: str = ""
    line: int = 0
    labels: Mapping[str, Any] = field(factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)

    @property
    def is_supervised(self) -> bool:
        """True where there is anything to learn: reasoning or action that is not blank."""
        return any(s.type in TRAINED and s.text.strip() for s in self.segments)

    def spans(self) -> tuple[Span, ...]:
        """The segments as character offsets; neighbours of one type are one span."""
        spans: list[Span] = []
        at = 0
        written = (segment for segment in self.segments if segment.text)
        for kind, run in groupby(written, lambda segment: segment.type):
            end = at + sum(len(segment.text) for segment in run)
            spans.append(Span(start=at, end=end, type=kind))
            at = end
        return tuple(spans)

    def media(self) -> tuple[Media, ...]:
        """Pictures, films and sounds in the order of their placeholders."""
        return tuple(s.media for s in self.segments if s.media is not None)
