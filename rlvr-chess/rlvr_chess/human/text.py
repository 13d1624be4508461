"""Boards as text: Unicode or plain letters, with coordinates, from either side."""

from __future__ import annotations

import chess

EMPTY = "\N{MIDDLE DOT}"


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
