from __future__ import annotations

import random

import chess

from rlvr_chess.fen import board_of, fen_of, push, squares_of

LIVELY = [
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1",
    "r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1",
    "rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8",
    "n1n5/PPPk4/8/8/8/8/4Kppp/5N1N b - - 0 1",
    "8/8/8/8/k2pP2Q/8/8/4K3 b - e3 0 1",
    chess.STARTING_FEN,
]
"""Castling, promotion, en passant, pins: positions that perft counts are checked on."""


def test_boards_and_texts_agree_with_python_chess() -> None:
    """1,500 moves of random games: board, 64 letters and FEN are those of python-chess."""
    rng = random.Random(3)
    plies = 0
    while plies < 1500:
        slow = chess.Board(rng.choice(LIVELY))
        while not slow.is_game_over() and slow.ply() < 250:
            before = slow.fen()
            squares = squares_of(before)
            board = board_of(before, squares)
            assert board == chess.Board(before)
            assert board.fen() == before
            assert fen_of(board, squares) == before
            move = rng.choice(list(slow.legal_moves))
            squares = push(board, squares, move)
            slow.push(move)
            assert squares == squares_of(slow.fen())
            assert fen_of(board, squares) == slow.fen()
            plies += 1


def test_fen_is_canonical_though_the_text_was_not() -> None:
    """An en-passant square that a pinned pawn cannot use is not written."""
    fen = "8/8/8/8/k2pP2Q/8/8/4K3 b - e3 0 1"
    assert fen_of(board_of(fen, squares_of(fen)), squares_of(fen)) == fen.replace("e3", "-")
