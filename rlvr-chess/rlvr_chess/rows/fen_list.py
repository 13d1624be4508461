"""A bare position: to be asked for a move, and for what a move does."""

from __future__ import annotations

from rlvr_chess.fen import read_board
from rlvr_chess.records import PolicyPosition
from rlvr_chess.rows.limits import check_clock
from rlvr_chess.rows.row import Row


def row(line: str, number: int) -> Row:
    """The position of a line of six fields; FenError or RowError says what is wrong with it."""
    fen = read_board(" ".join(line.split())).fen()
    check_clock(fen)
    return Row(id=str(number), payload=PolicyPosition(fen=fen), is_bare=True, line=number)
