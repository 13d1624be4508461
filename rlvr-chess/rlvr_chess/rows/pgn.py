"""Games in PGN: main lines only; a game with an illegal move is left out and said."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from functools import partial

import chess
import chess.pgn

from rlvr_chess.fen import read_board
from rlvr_chess.rows.limits import check_clock
from rlvr_chess.rows.lines import Lines
from rlvr_chess.rows.row import GameLine, Item, RowError, refused

_STANDARD = {"", "standard", "chess", "from position", "normal"}


class _Reader(chess.pgn.BaseVisitor[None]):
    """Collects the moves of the main line, and the first thing that is wrong."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.moves: list[str] = []
        self.start = chess.STARTING_FEN
        self.problem = ""

    def visit_header(self, tagname: str, tagvalue: str) -> None:
        self.headers[tagname] = tagvalue

    def end_headers(self) -> chess.pgn.SkipType | None:
        variant = self.headers.get("Variant", "").lower()
        if variant not in _STANDARD:
            self.problem = f"variant {variant!r}, not standard chess"
        try:
            self.start = read_board(
                self.headers.get("FEN", chess.STARTING_FEN), may_be_over=True
            ).fen()
        except ValueError as error:
            self.problem = f"its FEN: {error}"
        return chess.pgn.SKIP if self.problem else None

    def begin_variation(self) -> chess.pgn.SkipType:
        return chess.pgn.SKIP

    def visit_move(self, board: chess.Board, move: chess.Move) -> None:
        if not move:
            self.handle_error(ValueError(f"move {len(self.moves) + 1} is a null move"))
        self.moves.append(move.uci())

    def handle_error(self, error: Exception) -> None:
        self.problem = self.problem or str(error)

    def result(self) -> None:
        return None


def read(lines: Lines, _name: str) -> Iterator[Item]:
    """The games of a file, in order; a game's id is its number."""
    text, handle = lines.text, io.StringIO(lines.text)
    count, number, end = 0, 1, 0
    while (begin := _blank(text, end)) < len(text):
        count += 1
        number += text.count("\n", end, begin)
        handle.seek(begin)
        reader = _Reader()
        chess.pgn.read_game(handle, Visitor=partial(_itself, reader))
        try:
            yield _game(reader, count)
        except ValueError as error:
            yield refused(number, RowError(f"game {count}: {error}"))
        end = handle.tell()
        number += text.count("\n", begin, end)


def _itself(reader: _Reader) -> _Reader:
    return reader


def _blank(text: str, at: int) -> int:
    """Where the blank lines that begin at `at` end."""
    rest = re.compile(r"\s*").match(text, at)
    return rest.end() if rest else at


def _game(reader: _Reader, count: int) -> GameLine:
    if reader.problem:
        raise RowError(reader.problem)
    if not reader.moves:
        raise RowError("no moves")
    check_clock(reader.start, len(reader.moves))
    return GameLine(
        id=str(count),
        start_fen=reader.start,
        moves=reader.moves,
        result=reader.headers.get("Result", "*"),
    )
