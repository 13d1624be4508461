"""Boards as SVG, for reports."""

from __future__ import annotations

from collections.abc import Iterable

import chess
import chess.svg

from rlvr_chess.fen import read_board

GOOD, BAD = "#15781B", "#882020"
"""Colours of arrows."""


def board_svg(
    fen: str,
    *,
    move: str | None = None,
    arrows: Iterable[tuple[str, str]] = (),
    size: int = 320,
    flipped: bool = False,
    coordinates: bool = True,
) -> str:
    """
    A position as SVG text; equal arguments give equal text.

    Args:
        fen: Six fields; the game may be over.
        move: UCI of the last move, whose squares are marked; None: nothing.
        arrows: (UCI, colour) of moves to draw on it.
        size: Pixels of a side.
        flipped: Black's side below.
        coordinates: Letters and numbers on the margin.

    Raises:
        FenError: The position is impossible.
    """
    board = read_board(fen, may_be_over=True)
    drawn = [
        chess.svg.Arrow(step.from_square, step.to_square, color=colour)
        for step, colour in ((chess.Move.from_uci(uci), colour) for uci, colour in arrows)
    ]
    return chess.svg.board(
        board,
        orientation=chess.BLACK if flipped else chess.WHITE,
        lastmove=chess.Move.from_uci(move) if move else None,
        check=board.king(board.turn) if board.is_check() else None,
        arrows=drawn,
        size=size,
        coordinates=coordinates,
    )
