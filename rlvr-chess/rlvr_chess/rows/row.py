"""What a file of chess holds: rows that are questions, games, and rows that are neither."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TypeAlias

from attrs import field, frozen

from rlvr_chess.records import Payload

LONGEST_ID = 500
"""Characters of an id: it goes into every verdict, trajectory and checkpoint."""
_LONGEST_REASON = 400


@frozen(kw_only=True)
class Row:
    """
    A question of a data set.

    Attributes:
        id: The row's own id, else its line number as text; "17/env" for the second question
            about a position.
        payload: What is asked.
        split: The row's own split ("train", "test"), "" where it has none.
        game: What it came from, where rows of one game must stay in one split.
        is_bare: A position and nothing else: it stands for an environment problem as well.
        line: Its number in the file, 0 where a row is no line.
        is_named: Whether the row gave its id; an id that was made gives way to it.
    """

    id: str
    payload: Payload
    split: str = ""
    game: str = ""
    is_bare: bool = False
    line: int = 0
    is_named: bool = False


@frozen(kw_only=True)
class Unsupported:
    """A row that yields no problem: its id, or `line N`, and why; the rest as of a `Row`."""

    id: str
    reason: str
    line: int = 0
    is_named: bool = False


def _texts(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(texts)


@frozen(kw_only=True)
class GameLine:
    """
    A game or an opening line, every move of it legal.

    Attributes:
        id: Number of the game in its file (from 1), or of the line.
        start_fen: Six fields before the first move.
        moves: UCI.
        result: "1-0", "0-1", "1/2-1/2" or "*".
        is_opening: True for a line of openings, False for a game that was played.
        split: Where its positions belong, set by the task.
    """

    id: str
    start_fen: str
    moves: tuple[str, ...] = field(converter=_texts, repr=False)
    result: str = "*"
    is_opening: bool = False
    split: str = ""


Item: TypeAlias = Row | GameLine | Unsupported


class RowError(ValueError):
    """Why a row cannot become a problem; `name` is its id, `is_named` whether the row gave it."""

    def __init__(self, reason: str, name: str = "", *, is_named: bool = True) -> None:
        super().__init__(reason)
        self.name = name
        self.is_named = bool(name) and is_named


def refused(number: int, error: Exception) -> Unsupported:
    """The row of a line that was refused; the line's number is always said."""
    name = getattr(error, "name", "")
    is_named = getattr(error, "is_named", False)
    if not name or len(name) > LONGEST_ID:
        name, is_named = f"line {number}", False
    said = str(error)
    if len(said) > _LONGEST_REASON:  # it shows what was found
        said = f"{said[:_LONGEST_REASON]}... ({len(said)} characters)"
    reason = f"line {number}: {said}"
    return Unsupported(id=name, reason=reason, line=number, is_named=is_named)


def free_id(name: str, taken: Container[str]) -> str:
    """The name, or where it is taken the first of `name~2`, `name~3`, ... that is free."""
    found, count = name, 1
    while found in taken:
        count += 1
        found = f"{name}~{count}"
    return found
