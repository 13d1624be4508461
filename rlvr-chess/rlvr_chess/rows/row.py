"""What a file of chess holds: rows that are questions, games, and rows that are neither."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import TypeAlias

from attrs import field, frozen

from rlvr import as_tuple
from rlvr_chess.questions.grammar import parse_environment, parse_policy, policy_text
from rlvr_chess.questions.records import Payload
from rlvr_chess.values import ActionValues

LONGEST_ID = 500
"""Characters of an id: it goes into every verdict, trajectory and checkpoint."""
_LONGEST_REASON = 400
_SHOWN = 20


@frozen(kw_only=True)
class Row:
    """
    A question of a data set.

    Attributes:
        id: Its own, else its line number as text; "17/env" for a position's second question.
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
    moves: tuple[str, ...] = field(converter=as_tuple, repr=False)
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


def each(
    lines: Iterable[tuple[int, str]], read: Callable[[str, int], Item | None]
) -> Iterator[Item]:
    """What `read` makes of each line (its text, its number); None: nothing is said of it."""
    for number, text in lines:
        try:
            item = read(text, number)
        except ValueError as error:
            item = refused(number, error)
        if item is not None:
            yield item


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


def check_clock(fen: str, plies: int = 1) -> None:
    """RowError where the position behind so many legal moves has too long a move number."""
    *fields, clock = fen.split(" ")
    number = int(clock) + (plies + (fields[1] == "b")) // 2
    if parse_environment(f"{' '.join(fields)} {number}+0.001+0+0") is None:
        raise RowError(
            f"its move number is {clock}, so that a position behind it has {number}: more digits "
            "than an answer may write; give it a smaller one"
        )


def check_values(values: ActionValues) -> None:
    """RowError where the evaluation of a move has more digits than an answer may write."""
    by_size = sorted(values.moves, key=lambda move: abs(move[2]))
    largest = {kind: (uci, value) for uci, kind, value in by_size}
    for kind, (uci, value) in largest.items():
        if parse_policy(policy_text([uci], [values.score_text(uci)], uci), 1) is None:
            shown = str(value) if len(str(value)) <= _SHOWN else f"{str(value)[:_SHOWN]}..."
            raise RowError(f'"{kind}" {shown} of {uci} has more digits than an answer may write')
