"""Puzzles of database.lichess.org: the FEN is before the opponent's move, which is played first."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence

from rlvr_chess.fen import read_board
from rlvr_chess.questions.records import Solution
from rlvr_chess.questions.transition import first_illegal
from rlvr_chess.rows.row import FileError, Item, Lines, Row, RowError, check_clock, refused

COLUMNS = ("PuzzleId", "FEN", "Moves", "Rating", "RatingDeviation", "Popularity", "NbPlays")
"""The first columns of the database, for files without a line of headings."""
NEEDED = COLUMNS[:3]
_GAME = re.compile(r"lichess\.org/(\w{8})")


def read(lines: Lines, _name: str) -> Iterator[Item]:
    """
    The puzzles of a file, in order.

    Raises:
        FileError: A column is missing.
    """
    columns: Sequence[str] | None = None
    for number, text in lines.good:
        try:
            (cells,) = csv.reader([text], strict=True)
        except (csv.Error, ValueError) as error:
            yield refused(number, RowError(f"not CSV: {error}"))
            continue
        if columns is None:
            columns, is_heading = _columns(cells)
            if is_heading:
                continue
        row = dict(zip(columns, cells, strict=False))
        try:
            yield _puzzle(row, number)
        except ValueError as error:
            yield refused(number, RowError(str(error), row.get("PuzzleId", "").strip()))


def _columns(cells: list[str]) -> tuple[Sequence[str], bool]:
    names = [cell.strip() for cell in cells]
    missing = [name for name in NEEDED if name not in names]
    if not missing:
        return names, True
    if len(cells) >= len(NEEDED) and cells[1].count("/") == 7:
        return [*COLUMNS, "Themes", "GameUrl", "OpeningTags"], False
    raise FileError(f"is CSV without the columns {', '.join(missing)}; it has {', '.join(names)}")


def _puzzle(row: dict[str, str], number: int) -> Row:
    missing = [name for name in NEEDED if not row.get(name, "").strip()]
    if missing:
        raise RowError(f"nothing in {', '.join(missing)}")
    board = read_board(row["FEN"].strip())
    moves = row["Moves"].split()
    if wrong := first_illegal(board.copy(), moves):
        raise RowError(f"move {wrong} of its line, {moves[wrong - 1]!r}, is not legal")
    setup, *line = moves
    if len(line) % 2 == 0:
        raise RowError(f"{len(line) + 1} moves: wanted the set-up move and an odd number behind it")
    check_clock(board.fen())
    board.push_uci(setup)
    game = _GAME.search(row.get("GameUrl", ""))
    rating = row.get("Rating", "").strip() or "0"
    if not rating.isdecimal():
        raise RowError(f"its rating is no number: {rating!r}")
    solution = Solution(
        fen=board.fen(),
        points={line[0]: 1.0},
        any_mate=len(line) == 1,
        line=tuple(line),
        rating=int(rating),
        suite="puzzle",
    )
    return Row(
        id=row["PuzzleId"].strip(),
        payload=solution,
        game=game[1] if game else "",
        line=number,
        is_named=True,
    )
