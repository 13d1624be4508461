"""A trajectory in the making: what adapters fill, piece by piece."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from attrs import define, field, frozen

from rlvr_sad.trajectory import AgentTrajectory, Media, Segment, SpanType


class BadRecordError(ValueError):
    """A record cannot be read as the format it claims to be; the text says what is wrong."""


@frozen
class Piece:
    """Text of one type by one author; pieces of a text, joined, are that text."""

    type: SpanType
    text: str
    role: str = "assistant"


_NEWLINE = Piece("other", "\n", "template")
AUTHOR = {"other": "user", "reasoning": "assistant", "action": "assistant", "observation": "tool"}
"""Default role of each type, where the format names none."""


@define
class TrajectoryBuilder:
    """
    Pieces in order, and what is to be said about them.

    Attributes:
        suffix: What tells several trajectories of one record apart: "#1", "#2".
        format: Name of the format, where it is more exact than the adapter's.
        labels: See `AgentTrajectory`.
        notes: See `AgentTrajectory`.
    """

    suffix: str = ""
    format: str = ""
    labels: dict[str, Any] = field(factory=dict)
    notes: list[str] = field(factory=list)
    _pieces: list[tuple[Piece, Media | None]] = field(factory=list)
    _is_parted: bool = False

    @property
    def is_empty(self) -> bool:
        return not self._pieces

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(piece for piece, _ in self._pieces)

    def add(self, piece: Piece, media: Media | None = None) -> None:
        """Append text; an empty one is left out."""
        if piece.text:
            self._pieces.append((piece, media))

    def extend(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self.add(piece)

    def message(self, pieces: Iterable[Piece]) -> None:
        """Append the pieces of a message; a newline ends each message."""
        kept = [piece for piece in pieces if piece.text]
        if kept:
            self.part()
            self.extend(kept)

    def part(self) -> None:
        """End the previous message, if any, with a newline of the template."""
        if self._pieces:
            self._pieces.append((_NEWLINE, None))
        self._is_parted = True

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def build(self, *, id: str, format: str, source: str, line: int) -> AgentTrajectory:
        segments: list[Segment] = []
        at = 0
        pieces = self._pieces + ([(_NEWLINE, None)] if self._is_parted else [])
        # neighbours of one type and author are one segment; placeholders stay by themselves
        for (kind, role, _), run in groupby(enumerate(pieces), _alike):
            members = [member for _, member in run]
            text = "".join(piece.text for piece, _ in members)
            end = at + len(text.encode("utf-8"))
            segments.append(
                Segment(role=role, type=kind, text=text, start=at, end=end, media=members[0][1])
            )
            at = end
        return AgentTrajectory(
            id=id + self.suffix,
            format=self.format or format,
            segments=tuple(segments),
            source=source,
            line=line,
            labels=self.labels,
            notes=tuple(self.notes),
        )


def _alike(numbered: tuple[int, tuple[Piece, Media | None]]) -> tuple[SpanType, str, int]:
    """Type and role: pieces that share them join into one segment."""
    number, (piece, media) = numbered
    return piece.type, piece.role, -1 if media is None else number
