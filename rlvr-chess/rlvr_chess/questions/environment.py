"""Environment questions about bare positions: a move is chosen by hash, kind by kind.

Of the kinds of moves that a position offers each is as likely as any other, so that castling,
promotions and checks are met far more often than in games. Every twelfth question asks for an
illegal move (the design allows a tenth): where copying the input is right too often, copying pays.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache

import chess

from rlvr_chess.fen import four_fields
from rlvr_chess.questions.categories import category_of, legal_category, plain_category
from rlvr_chess.questions.records import EnvironmentStep
from rlvr_chess.questions.transition import legal_move

ILLEGAL_EVERY = 12
"""One illegal move in so many questions."""
_TRIES = 200
_CHECKS = 0.25
"""Share of positions whose question is to be a check, and a mate if there is one."""
_FEW = 6
"""Men on the board, at most, where moves may end the game in other ways."""
_PIECES = "qrbn"


def steps_of(fens: Iterable[str]) -> Iterator[EnvironmentStep]:
    """A question about each position, in their order; the same for the same positions."""
    fens = list(fens)
    order = sorted(range(len(fens)), key=lambda i: (hash_of("order", fens[i]), i))
    rank = {i: place for place, i in enumerate(order, 1)}
    for i, fen in enumerate(fens):
        yield step_of(fen, is_legal=rank[i] % ILLEGAL_EVERY != 0)


@lru_cache(maxsize=1 << 14)  # a second of work for the shipped positions, asked for by every task
def step_of(fen: str, *, is_legal: bool = True) -> EnvironmentStep:
    """A question about one position; its move is drawn from a hash of the position."""
    rng = random.Random(hash_of("step", fen))
    if is_legal:
        uci, category = _legal(fen, rng)
    else:
        uci = _illegal(fen, rng)
        category = category_of(fen, uci)
    return EnvironmentStep(fen=fen, uci=uci, category=category)


def hash_of(salt: str, fen: str) -> int:
    """A number of the position (its first four fields), the same on every machine."""
    return int.from_bytes(hashlib.sha256(f"{salt} {four_fields(fen)}".encode()).digest()[:8])


def _legal(fen: str, rng: random.Random) -> tuple[str, str]:
    """A legal move and its category."""
    board = chess.Board(fen)
    moves, category = list(board.legal_moves), legal_category
    if chess.popcount(board.occupied) > _FEW:
        if rng.random() < _CHECKS and (checks := [m for m in moves if board.gives_check(m)]):
            moves = checks
        else:
            category = plain_category
    kinds: dict[str, list[chess.Move]] = defaultdict(list)
    for move in moves:
        kinds[category(board, move)].append(move)
    kind = rng.choice(["checkmate"] if "checkmate" in kinds else sorted(kinds))
    move = rng.choice(sorted(kinds[kind], key=chess.Move.uci))
    return move.uci(), legal_category(board, move)


def _illegal(fen: str, rng: random.Random) -> str:
    """A move of one of the kinds of mistakes; where a position does not offer it, another kind."""
    board = chess.Board(fen)
    for _ in range(_TRIES):
        uci = rng.choice(MAKERS)(board, rng)
        if uci and legal_move(board, uci) is None:
            return uci
    return "0000"


def _from(squares: chess.SquareSet, rng: random.Random) -> str:
    start = rng.choice(list(squares))
    end = rng.choice([square for square in chess.SQUARES if square != start])
    return chess.SQUARE_NAMES[start] + chess.SQUARE_NAMES[end]


def _empty(board: chess.Board, rng: random.Random) -> str:
    return _from(~chess.SquareSet(board.occupied), rng)


def _geometry(board: chess.Board, rng: random.Random) -> str:
    return _from(chess.SquareSet(board.occupied_co[board.turn]), rng)


def _opponent(board: chess.Board, rng: random.Random) -> str:
    other = board.copy(stack=False)
    other.turn = not board.turn
    moves = sorted(move.uci() for move in other.pseudo_legal_moves)
    return rng.choice(moves) if moves else ""


def _into_check(board: chess.Board, rng: random.Random) -> str:
    moves = sorted(move.uci() for move in board.pseudo_legal_moves if not board.is_legal(move))
    return rng.choice(moves) if moves else ""


def _promotion(board: chess.Board, rng: random.Random) -> str:
    """A promotion without its letter, or a letter too many."""
    moves = sorted({move.uci() for move in board.legal_moves})
    uci = rng.choice(moves)
    return uci[:4] if len(uci) == 5 else uci + rng.choice(_PIECES)


def _malformed(board: chess.Board, rng: random.Random) -> str:
    uci = rng.choice(sorted(move.uci() for move in board.legal_moves))
    return rng.choice([f"{uci[:2]}-{uci[2:]}", uci[:3], uci.upper(), f"{uci[:3]}9", "0000"])


MAKERS = (_empty, _opponent, _geometry, _into_check, _promotion, _malformed)
"""One a kind of mistake: a move (UCI) that may be illegal, "" where a position offers none."""
