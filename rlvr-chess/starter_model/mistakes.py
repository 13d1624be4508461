"""Moves that may not be played, one maker a reason (`rlvr_chess.questions.categories`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import chess

SQUARES = chess.SQUARE_NAMES


def empty(board: chess.Board, rng: random.Random) -> str | None:
    """From a square where nobody stands."""
    return _anywhere(list(chess.SquareSet(~board.occupied)), rng)


def opponent(board: chess.Board, rng: random.Random) -> str | None:
    """As the other side's man moves."""
    other = board.copy(stack=False)
    other.turn = not board.turn
    return _one([move.uci() for move in other.pseudo_legal_moves], rng)


def geometry(board: chess.Board, rng: random.Random) -> str | None:
    """An own man, to a square that it does not reach."""
    return _anywhere(list(chess.SquareSet(board.occupied_co[board.turn])), rng)


def into_check(board: chess.Board, rng: random.Random) -> str | None:
    """As the man moves, but the king is left in check."""
    moves = [move.uci() for move in board.pseudo_legal_moves if not board.is_legal(move)]
    return _one(moves, rng)


def promo_missing(board: chess.Board, rng: random.Random) -> str | None:
    """A promotion without its letter."""
    return _one([m.uci()[:4] for m in board.legal_moves if m.promotion], rng)


def promo_extra(board: chess.Board, rng: random.Random) -> str | None:
    """A letter behind a move that promotes nothing."""
    uci = _one([m.uci() for m in board.legal_moves if not m.promotion], rng)
    return uci and uci + rng.choice("qrbn")


def malformed(board: chess.Board, rng: random.Random) -> str | None:
    """A legal move, misspelt."""
    uci = _one([move.uci() for move in board.legal_moves], rng)
    return uci and rng.choice([f"{uci[:2]}-{uci[2:]}", uci[:3], uci.upper(), f"{uci[:3]}9"])


def null(board: chess.Board, rng: random.Random) -> str | None:
    """UCI's word for no move."""
    return "0000"


def _one(moves: list[str], rng: random.Random) -> str | None:
    return rng.choice(moves) if moves else None


def _anywhere(starts: list[int], rng: random.Random) -> str | None:
    start, end = rng.choice(starts), rng.choice(chess.SQUARES)
    return None if start == end else SQUARES[start] + SQUARES[end]


MISTAKES: Mapping[str, Callable[[chess.Board, random.Random], str | None]] = {
    f"illegal_{maker.__name__}": maker
    for maker in (
        empty, opponent, geometry, into_check, promo_missing, promo_extra, malformed, null
    )
}  # fmt: skip
"""Reason to maker. A maker gives None, or a move of another kind, where a position offers none."""
