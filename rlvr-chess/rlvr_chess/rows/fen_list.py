"""A bare position: to be asked for a move, and for what a move does."""

from __future__ import annotations

from rlvr_chess.fen import read_board
from rlvr_chess.records import PolicyPosition
from rlvr_chess.rows.row import Row


def row(line: str, number: int) -> Row:
    """The position of a line of six fields; FenError says what is wrong with it."""
    board = read_board(" ".join(line.split()))
    return Row(id=str(number), payload=PolicyPosition(fen=board.fen()), is_bare=True)
