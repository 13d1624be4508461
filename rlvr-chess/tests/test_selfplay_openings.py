from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr import ConfigError, UnknownNameError
from rlvr_chess.selfplay.openings import (
    START,
    Opening,
    book,
    choose_openings,
    read_lines,
    read_openings,
)


def test_book_is_legal_move_by_move() -> None:
    """Every move of the book is legal where it stands, and play goes on after it."""
    for opening in book():
        board = chess.Board(opening.start_fen)
        for uci in opening.moves:
            assert chess.Move.from_uci(uci) in board.legal_moves, (opening.name, uci)
            board.push_uci(uci)
        assert not board.is_game_over(claim_draw=True), opening.name
        assert len(board.piece_map()) > 20, f"{opening.name}: no opening has so few pieces"


def test_book_has_many_openings_each_once() -> None:
    """Forty openings and more: names, codes and the positions they lead to are told apart."""
    openings = book()
    assert len(openings) >= 40
    assert len({o.name for o in openings}) == len(openings)
    assert len({o.board().epd() for o in openings}) == len(openings)
    assert all(re.fullmatch(r"[A-E]\d\d", o.eco) for o in openings)


def test_known_line_stands_under_its_own_name() -> None:
    """The Pirc is the Pirc (the predecessor's was another opening)."""
    pirc = next(o for o in book() if o.name == "Pirc Defence")
    assert chess.Board().variation_san([chess.Move.from_uci(m) for m in pirc.moves]) == (
        "1. e4 d6 2. d4 Nf6 3. Nc3 g6"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("e2e4 e7e5 e1e3", "move 3, 'e1e3', is illegal"),
        ("e2e4 Nf6", "move 2, 'Nf6', is not UCI"),
        ("C20; No Game; e2e4 0000", "move 2, '0000', is illegal"),
        ("4k3/8/8/8/8/8/8/4K3 w - - 0 1", "the game is over"),
        ("8/8/8/8/8/8/8/4K3 w - - 0 1", "Black has no king"),
        ("f2f3 e7e5 g2g4 d8h4", "the game is over"),
    ],
)
def test_broken_line_is_named(line: str, said: str) -> None:
    """Illegal moves, bare kings and finished games are refused with the number of their line."""
    with pytest.raises(ConfigError) as caught:
        read_lines(["# ours", "", "e2e4 e7e5", line], "own.txt")
    assert "own.txt, line 4" in str(caught.value)
    assert said in str(caught.value)


def test_file_of_lines_and_positions(tmp_path: Path) -> None:
    """UCI lines, our own format, and FENs of four or six fields may stand in one file."""
    path = tmp_path / "own.txt"
    path.write_text(
        "d2d4 d7d5\nA00; Grob; g2g4\n8/8/4k3/8/8/4P3/4K3/8 w - -\n"
        "8/8/4k3/8/8/4P3/4K3/8 b - - 5 40\n"
    )
    lines, grob, four, six = read_openings(path)
    assert lines.moves == ("d2d4", "d7d5")
    assert (grob.eco, grob.name) == ("A00", "Grob")
    assert four.start_fen == "8/8/4k3/8/8/4P3/4K3/8 w - - 0 1"
    assert six.board().fen() == "8/8/4k3/8/8/4P3/4K3/8 b - - 5 40"


def test_no_file_and_no_line(tmp_path: Path) -> None:
    """A file that is not there and one without openings are said, not silently empty."""
    with pytest.raises(UnknownNameError, match="no such file"):
        read_openings(tmp_path / "none.txt")
    (tmp_path / "empty.txt").write_text("# nothing\n")
    with pytest.raises(ConfigError, match="found: none in it"):
        read_openings(tmp_path / "empty.txt")


@given(count=st.integers(1, 40), kinds=st.integers(1, 12), seed=st.integers(0, 9))
def test_every_opening_has_its_turn(count: int, kinds: int, seed: int) -> None:
    """No opening is drawn twice more than another, and equal seeds draw alike."""
    openings = [Opening(name=f"n{i}", moves=()) for i in range(kinds)]
    drawn = choose_openings(openings, count, seed=seed)
    times = Counter(o.name for o in drawn)
    assert len(drawn) == count
    assert max(times.values()) - min(times[o.name] for o in openings) <= 1
    assert drawn == choose_openings(openings, count, seed=seed)


def test_quota_counts_by_name() -> None:
    """Two lines of one name share its quota; what it does not allow is refused."""
    openings = [Opening(name="a"), Opening(name="a", moves=["e2e4"]), Opening(name="b")]
    drawn = choose_openings(openings, 4, seed=0, quota=2)
    assert Counter(o.name for o in drawn) == {"a": 2, "b": 2}
    with pytest.raises(ConfigError, match="enough for 4 games"):
        choose_openings(openings, 5, seed=0, quota=2)


def test_start_is_the_initial_position() -> None:
    """Games without an opening begin where chess does."""
    assert START.board().fen() == chess.STARTING_FEN
