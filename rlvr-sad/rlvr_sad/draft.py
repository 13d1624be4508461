"""A trajectory in the making: what adapters fill, piece by piece."""

from __future__ import annotations

from collections.abc import Iterable
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
"""Who writes text of a type where the format does not say."""


@define
class Draft:
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
        """True before anything was added."""
        return not self._pieces

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """What was added."""
        return tuple(piece for piece, _ in self._pieces)

    def add(self, piece: Piece, media: Media | None = None) -> None:
        """Append text; an empty one is left out."""
        if piece.text:
            self._pieces.append((piece, media))

    def extend(self, pieces: Iterable[Piece]) -> None:
        """Append several."""
        for piece in pieces:
            self.add(piece)

    def message(self, pieces: Iterable[Piece]) -> None:
        """Append the pieces of a message; a newline ends each message."""
        kept = [piece for piece in pieces if piece.text]
        if kept:
            self.part()
            self.extend(kept)

    def part(self) -> None:
        """End the message before, where there is one, by a newline that nobody wrote."""
        if self._pieces:
            self._pieces.append((_NEWLINE, None))
        self._is_parted = True

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def build(self, *, id: str, format: str, source: str, line: int) -> AgentTrajectory:
        """The finished record."""
        segments: list[Segment] = []
        at = 0
        pieces = self._pieces + ([(_NEWLINE, None)] if self._is_parted else [])
        for piece, media in _merged(pieces):
            end = at + len(piece.text.encode("utf-8"))
            segments.append(
                Segment(
                    role=piece.role,
                    type=piece.type,
                    text=piece.text,
                    start=at,
                    end=end,
                    media=media,
                )
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


def _merged(pieces: list[tuple[Piece, Media | None]]) -> list[tuple[Piece, Media | None]]:
    """Neighbours of one type and author become one; placeholders stay by themselves."""
    runs: list[tuple[Piece, Media | None, list[str]]] = []
    for piece, media in pieces:
        last = runs[-1] if runs else None
        if (
            last is not None
            and media is None
            and last[1] is None
            and (last[0].type, last[0].role) == (piece.type, piece.role)
        ):
            last[2].append(piece.text)
        else:
            runs.append((piece, media, [piece.text]))
    return [(Piece(first.type, "".join(texts), first.role), media) for first, media, texts in runs]


def one_text(pieces: Iterable[Piece], format: str, *notes: str) -> Draft:
    """A draft of one text's pieces."""
    draft = Draft(format=format, notes=list(notes))
    draft.extend(pieces)
    return draft
