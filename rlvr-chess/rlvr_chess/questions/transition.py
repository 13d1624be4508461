"""What a move does to a position: the truth of the environment task, by the rules alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

import chess
from attrs import frozen

from rlvr_chess.fen import board_of, fen_of, push, squares_of
from rlvr_chess.values import MOST

WIN, DRAW, LEGAL, ILLEGAL = "1.0", "0.5", "0.001", "-1.0"
"""The reward field of an answer, seen from the side that moves."""
SEVENTY_FIVE = 150
"""Half-moves without a capture or a pawn move at which the game is drawn without a claim."""
UCI = re.compile("[a-h][1-8][a-h][1-8][qrbn]?")
"""Syntax of a move."""
_SHOWN = 3


@frozen
class State:
    """
    The state after a move as an answer writes it: the true one, or what was said.

    Attributes:
        fen: Canonical; the position as it was where the move is illegal.
        reward: `WIN`, `DRAW`, `LEGAL` or `ILLEGAL`.
        terminated: "1" where the game is over by the rules, without a claim; else "0".
        truncated: "1" where the move is illegal; else "0".
    """

    fen: str
    reward: str
    terminated: str
    truncated: str

    @property
    def is_legal(self) -> bool:
        """Whether the move may be played."""
        return self.truncated == "0"

    @property
    def outcome(self) -> tuple[str, str, str]:
        """Reward and the two bits."""
        return self.reward, self.terminated, self.truncated


@lru_cache(maxsize=4096)  # a group shares its prompt: its trajectories share one computation
def transition(fen: str, uci: str) -> State:
    """
    What `uci` does to the position, perhaps nothing (illegal, malformed, `0000`).

    Draws that a player has to claim (50 moves, threefold) do not end a game; fivefold
    repetition cannot be seen in a FEN and is never found.

    Raises:
        FenError: `fen` is no position.
    """
    board, squares = _board(fen)
    move = legal_move(board, uci)
    if move is None:
        return State(fen_of(board, squares), ILLEGAL, "0", "1")
    squares = push(board, squares, move)
    reward = _reward(board)
    return State(fen_of(board, squares), reward, "0" if reward == LEGAL else "1", "0")


def legal_move(board: chess.Board, uci: str) -> chess.Move | None:
    """
    The move, None where it may not be played.

    Stricter than `Board.parse_uci`, which takes `e1h1` for castling and lets `0000` pass.
    """
    if UCI.fullmatch(uci) is None or uci[:2] == uci[2:4]:
        return None
    move = chess.Move.from_uci(uci)
    if board.occupied_co[board.turn] & chess.BB_SQUARES[move.to_square]:
        return None
    return move if board.is_legal(move) else None


def first_illegal(board: chess.Board, moves: Iterable[str]) -> int:
    """Play moves (UCI) on a board; the number (from 1) of the first illegal one, 0: none is."""
    for number, uci in enumerate(moves, 1):
        move = legal_move(board, uci)
        if move is None:
            return number
        board.push(move)
    return 0


@lru_cache(maxsize=4096)
def legal_moves(fen: str) -> frozenset[str]:
    """All legal moves of a position in UCI."""
    board, _ = _board(fen)
    return frozenset(move.uci() for move in board.generate_legal_moves())


def check_moves(given: Sequence[str], fen: str) -> None:
    """
    Every legal move of a position is given once, and no other text.

    Raises:
        ValueError: What is illegal, missing or given twice.
    """
    legal = legal_moves(fen)
    if wrong := sorted(set(given) - legal):
        raise ValueError(f"not legal here: {' '.join(repr(uci[:8]) for uci in wrong[:_SHOWN])}")
    if missing := sorted(legal - set(given)):
        raise ValueError(f"no value of {len(missing)} legal moves: {' '.join(missing[:_SHOWN])}")
    if len(given) > len(legal):
        twice = next(uci for uci in given if given.count(uci) > 1)
        raise ValueError(f"{twice} has two values")


def count_of(fen: str) -> int:
    """Candidates that a line about a position names: at most five."""
    return min(MOST, len(legal_moves(fen)))


@lru_cache(maxsize=4096)
def mating_moves(fen: str) -> frozenset[str]:
    """The legal moves that mate at once."""
    return frozenset(uci for uci in legal_moves(fen) if transition(fen, uci).reward == WIN)


def _board(fen: str) -> tuple[chess.Board, str]:
    squares = squares_of(fen)
    return board_of(fen, squares), squares


def _reward(board: chess.Board) -> str:
    """Of the side that has just moved; mate comes before the 75-move rule."""
    if not any(board.generate_legal_moves()):
        return WIN if board.is_check() else DRAW
    if board.halfmove_clock >= SEVENTY_FIVE or board.is_insufficient_material():
        return DRAW
    return LEGAL
