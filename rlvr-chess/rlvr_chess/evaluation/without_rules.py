"""The floor of the environment task: what a player answers who edits the FEN and knows no rules.

It moves the letter from square to square, sets the clocks and the side, drops the castling rights
of squares that are touched, and calls a move illegal where no piece of the side to move stands. It
does not know how pieces move, castle or capture in passing, nor what check and mate are. On moves
of games it is right most of the time; a figure says something where it is above this floor.
"""

from __future__ import annotations

import re

from rlvr_chess.fen import squares_of
from rlvr_chess.grammar import EnvironmentAnswer
from rlvr_chess.transition import ILLEGAL, LEGAL

_UCI = re.compile(r"([a-h][1-8])([a-h][1-8])([qrbn]?)")
_HOMES = {"a1": "Q", "e1": "KQ", "h1": "K", "a8": "q", "e8": "kq", "h8": "k"}
_RUN = re.compile(r"\.+")


def without_rules(fen: str, uci: str) -> EnvironmentAnswer:
    """The answer to an environment question, from the text of position and move alone."""
    _, side, castling, _, half, full = fen.split(" ")
    squares = list(squares_of(fen))
    read = _UCI.fullmatch(uci)
    piece = squares[_place(read[1])] if read else "."
    if read is None or piece == "." or piece.isupper() != (side == "w"):
        return EnvironmentAnswer(fen, ILLEGAL, "0", "1")
    start, end, letter = read.groups()
    resets = piece in "Pp" or squares[_place(end)] != "."
    squares[_place(start)] = "."
    squares[_place(end)] = (letter.upper() if side == "w" else letter) or piece
    lost = _HOMES.get(start, "") + _HOMES.get(end, "")
    rights = "".join(right for right in castling if right not in lost) or "-"
    text = "".join(squares)
    board = "/".join(text[rank : rank + 8] for rank in range(0, 64, 8))
    board = _RUN.sub(lambda run: str(len(run[0])), board)
    clock = 0 if resets else int(half) + 1
    after = f"{'b' if side == 'w' else 'w'} {rights} - {clock} {int(full) + (side == 'b')}"
    return EnvironmentAnswer(f"{board} {after}", LEGAL, "0", "0")


def _place(square: str) -> int:
    """The index of a square in the 64 letters, a8 first."""
    return (8 - int(square[1])) * 8 + ord(square[0]) - ord("a")
