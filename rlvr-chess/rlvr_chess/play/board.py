"""Boards as text (Unicode or plain letters, from either side) and as SVG, for reports."""

from __future__ import annotations

from collections.abc import Iterable

import chess
import chess.svg

from rlvr_chess.fen import read_board

EMPTY = "\N{MIDDLE DOT}"
GOOD, BAD = "#15781B", "#882020"
"""Colours of arrows."""


def board_text(board: chess.Board, *, ascii_only: bool = False, flipped: bool = False) -> str:
    """
    Eight ranks and the letters of the files.

    Args:
        board: What to draw.
        ascii_only: Letters for pieces, capitals for White; else chess symbols.
        flipped: Black's side below.
    """
    files = range(7, -1, -1) if flipped else range(8)
    ranks = range(8) if flipped else range(7, -1, -1)
    lines = []
    for rank in ranks:
        squares = [_symbol(board.piece_at(chess.square(f, rank)), ascii_only) for f in files]
        lines.append(f"{rank + 1}  {' '.join(squares)}")
    lines.append("   " + " ".join(chess.FILE_NAMES[file] for file in files))
    return "\n".join(lines)


def _symbol(piece: chess.Piece | None, ascii_only: bool) -> str:
    if piece is None:
        return "." if ascii_only else EMPTY
    return piece.symbol() if ascii_only else piece.unicode_symbol()


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
