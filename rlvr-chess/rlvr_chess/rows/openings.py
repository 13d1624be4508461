"""Opening lines: moves in UCI from the starting position, one line an opening."""

from __future__ import annotations

from collections.abc import Iterator

import chess

from rlvr_chess.rows.lines import Lines
from rlvr_chess.rows.row import GameLine, Item, RowError, refused
from rlvr_chess.transition import legal_move


def read(lines: Lines, _name: str) -> Iterator[Item]:
    """The lines of a file, in order; an id is the number of the line."""
    for number, text in lines.good:
        if text.startswith("#"):
            continue
        try:
            moves = text.split("#")[0].split()
            _check(moves)
            yield GameLine(
                id=str(number), start_fen=chess.STARTING_FEN, moves=moves, is_opening=True
            )
        except ValueError as error:
            yield refused(number, error)


def _check(moves: list[str]) -> None:
    board = chess.Board()
    for count, uci in enumerate(moves, 1):
        move = legal_move(board, uci)
        if move is None:
            raise RowError(f"move {count}, {uci!r}, is not legal")
        board.push(move)
