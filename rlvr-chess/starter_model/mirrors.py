"""Mirrors that leave chess as it is: colours with ranks, and files where nobody may castle."""

from __future__ import annotations

import random

Moves = list[tuple[str, str, int]]  # UCI, "cp" or "mate", value


def mirrored(fen: str, moves: Moves, rng: random.Random) -> tuple[str, Moves]:
    """The position and its moves as they are, or mirrored one way or both."""
    board, turn, castling, ep, *clocks = fen.split()
    rows = board.split("/")
    files, ranks = str.maketrans("", ""), str.maketrans("", "")
    if rng.random() < 0.5:
        rows = [row.swapcase() for row in reversed(rows)]
        turn = "b" if turn == "w" else "w"
        castling = "".join(sorted(castling.swapcase(), key="-KQkq".index))
        ranks = str.maketrans("12345678", "87654321")
    if castling == "-" and rng.random() < 0.5:
        rows = [row[::-1] for row in rows]
        files = str.maketrans("abcdefgh", "hgfedcba")

    def there(text: str) -> str:
        return text[:4].translate(files).translate(ranks) + text[4:]  # a promotion's letter stays

    fen = " ".join(["/".join(rows), turn, castling, there(ep), *clocks])
    return fen, [(there(uci), kind, value) for uci, kind, value in moves]
