from __future__ import annotations

import random

import chess
import pytest

from rlvr_chess.fen import FenError, flip, flip_move
from rlvr_chess.questions.transition import legal_moves, mating_moves, transition

START = chess.STARTING_FEN
CASTLING = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 5 20"
PROMOTION = "3r3k/4P3/8/8/8/8/8/4K3 w - - 7 60"


def fields(fen: str, uci: str) -> tuple[str, str, str, str]:
    found = transition(fen, uci)
    return found.fen, found.reward, found.terminated, found.truncated


def by_python_chess(fen: str, uci: str) -> tuple[str, str, str, str]:
    """The same answer the plain way: list all legal moves, push, ask for the outcome."""
    board = chess.Board(fen)
    if uci not in [move.uci() for move in board.legal_moves]:
        return board.fen(), "-1.0", "0", "1"
    board.push(chess.Move.from_uci(uci))
    if board.is_checkmate():
        return board.fen(), "1.0", "1", "0"
    return (
        (board.fen(), "0.5", "1", "0") if board.is_game_over() else (board.fen(), "0.001", "0", "0")
    )


@pytest.mark.parametrize(
    "uci",
    [
        *("e2e5", "e7e5", "e4e5", "0000", "", "e2", "e2-e4", "e2e4 ", " e2e4", "e2e4\n", "E2E4"),
        *("e2e4q", "e2e4Q", "e2e9", "i2i4", "e2e2", "P@e4", "Nf3", "O-O", "e２e4", "a1a2", "@@@@"),
    ],
)
def test_an_illegal_move_changes_nothing(uci: str) -> None:
    """Whatever may not be played leaves the position, pays -1.0 and truncates."""
    assert fields(START, uci) == (START, "-1.0", "0", "1")


def test_castling_is_the_kings_move() -> None:
    """e1g1 moves the rook too and ends White's rights; e1h1 and e1a1 are not moves."""
    assert fields(CASTLING, "e1g1") == ("r3k2r/8/8/8/8/8/8/R4RK1 b kq - 6 20", "0.001", "0", "0")
    assert fields(CASTLING, "e1c1")[0] == "r3k2r/8/8/8/8/8/8/2KR3R b kq - 6 20"
    for uci in ("e1h1", "e1a1"):
        assert fields(CASTLING, uci) == (CASTLING, "-1.0", "0", "1")


def test_rights_end_by_the_rooks_move_and_by_its_capture() -> None:
    """a1a8 takes a rook: Q of White (it moved) and q of Black (it is gone) both end."""
    assert fields(CASTLING, "a1a8")[0] == "R3k2r/8/8/8/8/8/8/4K2R b Kk - 0 20"


def test_promotion_needs_its_letter() -> None:
    """A small letter chooses the piece; none, a king, a pawn or a capital is not a move."""
    assert fields(PROMOTION, "e7e8q")[0] == "3rQ2k/8/8/8/8/8/8/4K3 b - - 0 60"
    assert fields(PROMOTION, "e7d8n")[0] == "3N3k/8/8/8/8/8/8/4K3 b - - 0 60"
    for uci in ("e7e8", "e7e8k", "e7e8p", "e7e8Q", "e1e2q"):
        assert fields(PROMOTION, uci)[3] == "1"


def test_en_passant_square_only_where_a_capture_is_legal() -> None:
    """After d7d5 the square is written because e5xd6 is legal; after a7a5 it is not."""
    fen = "4k3/p2p4/8/4P3/8/8/8/4K3 b - - 0 1"
    assert fields(fen, "d7d5")[0] == "4k3/p7/8/3pP3/8/8/8/4K3 w - d6 0 2"
    assert fields(fen, "a7a5")[0] == "4k3/3p4/8/p3P3/8/8/8/4K3 w - - 0 2"
    assert fields("4k3/p7/8/3pP3/8/8/8/4K3 w - d6 0 2", "e5d6")[0] == (
        "4k3/p7/3P4/8/8/8/8/4K3 b - - 0 2"
    )


def test_clocks() -> None:
    """Pawn moves and captures reset the first; the second grows after Black."""
    fen = "4k2r/8/8/8/8/8/P7/R3K3 w - - 30 40"
    assert fields(fen, "a1b1")[0].endswith(" b - - 31 40")
    assert fields(fen, "a2a3")[0].endswith(" b - - 0 40")
    assert fields("4k2r/8/8/8/8/8/P7/R3K3 b - - 30 40", "h8h7")[0].endswith(" w - - 31 41")


@pytest.mark.parametrize(
    ("fen", "uci", "reward", "terminated"),
    [
        ("6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1", "a1a8", "1.0", "1"),
        ("6k1/5ppp/8/8/8/8/8/R5K1 w - - 149 90", "a1a8", "1.0", "1"),  # mate before 75 moves
        ("7k/8/6K1/8/8/8/5Q2/8 w - - 0 1", "f2f7", "0.5", "1"),
        ("8/8/8/8/8/2k5/3n4/K2B4 w - - 0 1", "d1c2", "0.001", "0"),
        ("8/8/8/8/8/2k5/2n5/1K6 w - - 0 1", "b1a2", "0.5", "1"),
        ("8/8/8/8/8/1k1b4/8/1K5b w - - 0 1", "b1a1", "0.5", "1"),  # bishops of one colour only
        ("8/8/8/8/8/1k1b4/8/1K4b1 w - - 0 1", "b1a1", "0.001", "0"),
        ("6k1/5ppp/8/8/8/8/8/R5K1 w - - 99 90", "a1a7", "0.001", "0"),  # somebody would claim it
        ("6k1/5ppp/8/8/8/8/8/R5K1 w - - 149 90", "a1a7", "0.5", "1"),
    ],
)
def test_ends(fen: str, uci: str, reward: str, terminated: str) -> None:
    """Mate, stalemate, dead position and 75 moves end a game; what must be claimed does not."""
    assert fields(fen, uci)[1:] == (reward, terminated, "0")


def test_random_moves_agree_with_python_chess() -> None:
    """1,600 moves, legal and not, of random games: the plain way gives the same four texts."""
    rng = random.Random(5)
    board = chess.Board()
    for _ in range(800):
        if board.is_game_over() or board.ply() > 150:
            board = chess.Board()
        moves = [move.uci() for move in board.legal_moves]
        uci = rng.choice(moves)
        squares = rng.choice(chess.SQUARE_NAMES) + rng.choice(chess.SQUARE_NAMES)
        for asked in (uci, squares + rng.choice(["", "", "q", "n"])):
            assert fields(board.fen(), asked) == by_python_chess(board.fen(), asked)
        assert legal_moves(board.fen()) == frozenset(moves)
        board.push_uci(uci)


def test_colours_are_alike() -> None:
    """The flipped move in the flipped position leads to the flipped state, with equal reward."""
    rng = random.Random(6)
    board = chess.Board("r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1")
    for _ in range(80):
        if board.is_game_over():
            break
        uci = rng.choice(sorted(move.uci() for move in board.legal_moves))
        there, here = transition(flip(board.fen()), flip_move(uci)), transition(board.fen(), uci)
        count = int(here.fen.rsplit(" ", 1)[1])
        # the move number grows after Black, so it is the one field that knows a colour
        assert there.fen.rsplit(" ", 1)[0] == flip(here.fen).rsplit(" ", 1)[0]
        assert abs(int(there.fen.rsplit(" ", 1)[1]) - count) == 1
        assert (there.reward, there.terminated) == (here.reward, here.terminated)
        board.push_uci(uci)


def test_mating_moves() -> None:
    """Every mate in one is found, and nothing else."""
    assert mating_moves("6k1/5ppp/8/8/8/8/8/R3Q1K1 w - - 0 1") == {"a1a8", "e1e8"}
    assert mating_moves(START) == frozenset()


def test_a_text_that_is_no_position_is_an_error() -> None:
    """Not a reward, not an illegal move: whoever asks made a mistake."""
    with pytest.raises(FenError):
        transition("no position", "e2e4")
