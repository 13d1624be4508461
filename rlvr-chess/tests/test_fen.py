from __future__ import annotations

import random
import subprocess
import sys

import chess
import pytest

from rlvr_chess.fen import (
    FenError,
    board_squares,
    canonical,
    flip,
    flip_move,
    four_fields,
    read_board,
)

START = chess.STARTING_FEN


def positions(count: int, seed: int) -> list[str]:
    """Positions of random games, all phases, both colours."""
    rng = random.Random(seed)
    found = []
    while len(found) < count:
        board = chess.Board()
        for _ in range(rng.randrange(120)):
            moves = list(board.legal_moves)
            if not moves:
                break
            board.push(rng.choice(moves))
        found.append(board.fen())
    return found


def test_start_position_reads() -> None:
    """The start position is the board that python-chess makes."""
    assert read_board(START) == chess.Board()


@pytest.mark.parametrize(
    ("fen", "reason"),
    [
        ("", "1 fields instead of six"),
        (START.rsplit(" ", 2)[0], "4 fields instead of six"),
        (f"{START} ", "7 fields"),
        (f"{START}\n", "no position"),
        (f"{START}\ngo infinite", "7 fields"),
        (START.replace(" w ", "  w "), "7 fields"),
        (START.replace("0 1", "٠ 1"), "no position"),
        (START.replace("0 1", "-1 1"), "no position"),
        (START.replace("0 1", "0 1_0"), "no position"),
        (START.replace("0 1", "0 99999"), "no position"),
        (START.replace("KQkq", "kqKQ"), "no position"),
        (START.replace("KQkq", "HAha"), "no position"),
        (START.replace(" - ", " e4 "), "no position"),
        (START.replace("8/8/8/8", "8/8/8/44"), "no board"),
        (START.replace("8/8/8/8", "8/8/8/7"), "no board"),
        (START.replace("8/8/8/8", "8/8/8/7pp"), "no board"),
        (START.replace("K", "Q", 1), "White has no king"),
        (START.replace("rnbqkbnr", "rnbkkbnr"), "two kings"),
        ("4k3/8/8/8/8/8/8/P3K3 w - - 0 1", "a pawn stands on the first"),
        ("4k3/8/8/8/8/8/8/4K3 w K - 0 1", "castling right"),
        ("4k3/8/8/8/8/8/8/4K2R w K e6 0 1", "en-passant square"),
        ("4k2R/8/8/8/8/8/8/4K3 w - - 0 1", "not to move is in check"),
        ("rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3", "over: checkmate"),
        ("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", "over: stalemate"),
        ("7k/8/6K1/8/8/8/8/8 b - - 0 1", "over: insufficient_material"),
        ("7k/8/6K1/8/8/8/8/R7 w - - 150 100", "over: seventyfive_moves"),
    ],
)
def test_what_nothing_can_be_asked_about_is_refused(fen: str, reason: str) -> None:
    """A text that is no position, and a position that is over, is refused with the reason."""
    with pytest.raises(FenError, match=reason):
        read_board(fen)


def test_long_rubbish_is_shown_cut() -> None:
    """An error names the text without repeating a page of it."""
    with pytest.raises(FenError) as caught:
        read_board("x" * 10_000)
    assert len(str(caught.value)) < 200


def test_over_may_be_allowed() -> None:
    """`may_be_over` reads a mate, not a position without a king."""
    mate = "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3"
    assert read_board(mate, may_be_over=True).is_checkmate()
    with pytest.raises(FenError):
        read_board(START.replace("K", "Q", 1), may_be_over=True)


def test_canonical_drops_an_en_passant_square_nobody_can_use() -> None:
    """After e2e4 python-chess writes no square where no legal capture exists, and so do we."""
    after = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1"
    assert canonical(after) == after.replace("e3", "-")
    usable = "rnbqkbnr/ppp1pppp/8/8/3pP3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 3"
    assert canonical(usable) == usable


def test_four_fields_forget_the_clocks() -> None:
    """Positions that differ in their clocks, or in a useless en-passant square, are one."""
    assert four_fields(START) == four_fields(START.replace("0 1", "7 40"))
    after = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1"
    assert four_fields(after) == "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq -"
    assert four_fields(START) != four_fields(START.replace("KQkq", "KQ"))
    with pytest.raises(FenError):
        four_fields("not a position")


def test_flip_is_python_chess_mirror_and_its_own_inverse() -> None:
    """Exchanging the colours agrees with `Board.mirror`, and twice is nothing."""
    for fen in positions(60, seed=1):
        flipped = flip(fen)
        assert flipped == chess.Board(fen).mirror().fen()
        assert flip(flipped) == fen
        moves = {move.uci() for move in chess.Board(fen).legal_moves}
        assert {flip_move(uci) for uci in moves} == {
            move.uci() for move in chess.Board(flipped).legal_moves
        }


def test_flip_of_rights_and_en_passant() -> None:
    """White's rights become Black's, written in the order KQkq; e3 becomes e6."""
    fen = "r3k3/8/8/8/3pP3/8/8/4K2R b Kq e3 0 1"
    assert flip(fen) == "4k2r/8/8/3Pp3/8/8/8/R3K3 w Qk e6 0 1"


def test_board_squares() -> None:
    """64 letters from a8 to h1; "" for anything that is no board of 8x8 squares."""
    squares = board_squares(START.split(" ")[0])
    assert squares == "rnbqkbnr" + "p" * 8 + "." * 32 + "P" * 8 + "RNBQKBNR"
    for wrong in ["", "8/8/8/8/8/8/8", "8/8/8/8/8/8/8/8/8", "8/8/8/8/8/8/8/9", "44/8/8/8/8/8/8/8"]:
        assert board_squares(wrong) == ""


def test_reading_positions_needs_no_torch() -> None:
    """Whoever reads positions and rules pays for python-chess and nothing heavy."""
    code = "import sys, rlvr_chess.questions.grammar; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
