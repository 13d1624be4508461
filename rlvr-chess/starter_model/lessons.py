"""What the starter model reads: prompts and right answers made of positions and their scores.

Positions are varied by two mirrors that leave chess as it is: colours with ranks, and, where nobody
may castle, files.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chess

from rlvr_chess.fen import flip, four_fields
from rlvr_chess.grammar import environment_prompt, environment_text, policy_prompt, policy_text_of
from rlvr_chess.transition import transition
from rlvr_chess.values import ActionValues

ILLEGAL = 0.1  # share of environment lessons whose move is illegal
SPECIAL = 0.25  # share whose move is a rare kind, where the position has one
SQUARES = [chess.square_name(square) for square in chess.SQUARES]
Lesson = tuple[str, str]  # prompt and answer
Moves = list[tuple[str, str, int]]


def read_positions(path: Path, held_out: set[str]) -> list[tuple[str, Moves]]:
    """FEN and scored moves of each position of the file that is not held out (four fields)."""
    with path.open() as lines:
        rows: list[Any] = [json.loads(line) for line in lines]
    return [
        (row["fen"], row["moves"])
        for row in rows
        if len(row["moves"]) > 1
        and not {four_fields(row["fen"]), four_fields(flip(row["fen"]))} & held_out
    ]


def lessons(positions: list[tuple[str, Moves]], seed: int, policy: float) -> Iterator[Lesson]:
    """Lessons without end: each epoch every position once, its task drawn with share `policy`."""
    rng = random.Random(seed)
    while True:
        for fen, moves in rng.sample(positions, len(positions)):
            fen, moves = mirrored(fen, moves, rng)
            if rng.random() < policy:
                yield policy_lesson(fen, moves)
            else:
                yield environment_lesson(fen, moves, rng)


def mirrored(fen: str, moves: Moves, rng: random.Random) -> tuple[str, Moves]:
    """The position as it is, or mirrored one way or both."""
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


def policy_lesson(fen: str, moves: Moves) -> Lesson:
    """The best moves, what they are worth, the best."""
    return policy_prompt(fen), policy_text_of(ActionValues(fen=fen, moves=moves))


def environment_lesson(fen: str, moves: Moves, rng: random.Random) -> Lesson:
    """What a move does: any legal one, a rare kind, or an illegal one."""
    drawn = rng.random()
    if drawn < ILLEGAL:
        uci = illegal(fen, {move for move, _, _ in moves}, rng)
    elif drawn < ILLEGAL + SPECIAL:
        uci = rng.choice(rare(fen, moves) or moves)[0]
    else:
        uci = rng.choice(moves)[0]
    return environment_prompt(fen, uci), environment_text(transition(fen, uci))


def rare(fen: str, moves: Moves) -> Moves:
    """Moves that promote, castle, take en passant, mate, or move two squares as a pawn may."""
    board = chess.Board(fen)
    found = []
    for scored in moves:
        move = chess.Move.from_uci(scored[0])
        if (
            move.promotion
            or scored[1:] == ("mate", 1)
            or board.is_castling(move)
            or board.is_en_passant(move)
            or (abs(move.from_square - move.to_square) == 16 and board.has_legal_en_passant())
        ):
            found.append(scored)
    return found


def illegal(fen: str, legal: set[str], rng: random.Random) -> str:
    """A move that is not legal: of a piece there, of the other side's, or of any two squares."""
    board = chess.Board(fen)
    own = [chess.square_name(square) for square in chess.SquareSet(board.occupied_co[board.turn])]
    while True:
        start = rng.choice(own if rng.random() < 0.6 else SQUARES)
        uci = start + rng.choice(SQUARES)
        if uci not in legal and uci[:2] != uci[2:]:
            return uci
