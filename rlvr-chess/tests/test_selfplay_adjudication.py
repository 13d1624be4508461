from __future__ import annotations

import chess
import pytest

from rlvr_chess.selfplay.game import (
    Ending,
    Rules,
    ended_by_resignation,
    ended_by_rules,
    ended_by_value,
    for_white,
)
from rlvr_chess.values import ActionValues, win_probability

SHUFFLE = ["g1f3", "g8f6", "f3g1", "f6g8"]


def _after(moves: list[str], fen: str = chess.STARTING_FEN) -> chess.Board:
    board = chess.Board(fen)
    for uci in moves:
        board.push_uci(uci)
    return board


@pytest.mark.parametrize(
    ("board", "ending"),
    [
        (_after(["f2f3", "e7e5", "g2g4", "d8h4"]), Ending(result="0-1", reason="checkmate")),
        (_after(["f6e7"], "7k/8/5Q2/6K1/8/8/8/8 w - - 0 1"), None),
        (
            _after(["f6f7"], "7k/8/5QK1/8/8/8/8/8 w - - 0 1"),
            Ending(result="1/2-1/2", reason="stalemate"),
        ),
        (
            _after(["e4d5"], "8/8/8/3n4/4K3/8/8/7k w - - 0 1"),
            Ending(result="1/2-1/2", reason="insufficient material"),
        ),
        (_after(SHUFFLE * 2), Ending(result="1/2-1/2", reason="threefold repetition")),
        (_after(SHUFFLE), None),
        (
            _after(["a1a2"], "7k/8/8/8/8/8/8/R3K3 w - - 99 80"),
            Ending(result="1/2-1/2", reason="fifty moves"),
        ),
        (_after(["a1a2"], "7k/8/8/8/8/8/8/R3K3 w - - 98 80"), None),
        (
            _after(["a1a2"], "7k/8/8/8/8/8/8/R3K3 w - - 149 99"),
            Ending(result="1/2-1/2", reason="75 moves"),
        ),
    ],
)
def test_end_by_the_rules(board: chess.Board, ending: Ending | None) -> None:
    """Mate, stalemate, dead positions, repetition and move counts end a game, nothing before."""
    assert ended_by_rules(board, 1, Rules()) == ending


def test_ply_cap_is_a_draw() -> None:
    """The game is drawn at the cap, and not one half-move earlier."""
    rules = Rules(max_plies=10)
    assert ended_by_rules(chess.Board(), 9, rules) is None
    assert ended_by_rules(chess.Board(), 10, rules) == Ending(result="1/2-1/2", reason="ply cap")


def test_one_is_the_least_of_what_is_counted() -> None:
    """Half-moves, tries and positions in a row: 1 is taken and 0 refused."""
    for name in ("max_plies", "retries", "resign_turns", "value_plies"):
        assert getattr(Rules(**{name: 1}), name) == 1
        with pytest.raises(ValueError, match=name):
            Rules(**{name: 0})


def test_mate_on_the_last_ply_is_a_mate() -> None:
    """The cap does not take a mate away."""
    board = _after(["f2f3", "e7e5", "g2g4", "d8h4"])
    ending = ended_by_rules(board, 4, Rules(max_plies=4))
    assert ending == Ending(result="0-1", reason="checkmate")


def test_resignation_needs_a_series() -> None:
    """Only turns in a row below the limit count; a turn without an estimate breaks the series."""
    rules = Rules(resign_below=0.1, resign_turns=3)
    black = chess.BLACK
    assert ended_by_resignation(black, [0.05, 0.05], rules) is None
    assert ended_by_resignation(black, [0.05, 0.2, 0.05], rules) is None
    assert ended_by_resignation(black, [0.05, None, 0.05, 0.05], rules) is None
    assert ended_by_resignation(black, [0.5, 0.05, 0.05, 0.05], rules) == Ending(
        result="1-0", reason="resignation"
    )
    assert ended_by_resignation(black, [0.0] * 9, Rules()) is None, "off by default"


def test_value_awards_the_game_to_the_side_ahead() -> None:
    """Three judged positions beyond 600 centipawns decide; one on the other side does not."""
    rules = Rules(value_limit=600, value_plies=3)
    ahead = win_probability("cp", 600)
    assert ended_by_value([ahead] * 2, rules) is None
    assert ended_by_value([ahead] * 3, rules) == Ending(result="1-0", reason="value")
    assert ended_by_value([1 - ahead] * 3, rules) == Ending(result="0-1", reason="value")
    assert ended_by_value([ahead, 1 - ahead, ahead], rules) is None
    assert ended_by_value([ahead - 1e-6] * 3, rules) is None
    assert ended_by_value([1.0] * 3, Rules()) is None, "off by default"


def test_values_are_the_side_to_moves() -> None:
    """A position that is good for Black to move is bad for White."""
    values = ActionValues(fen=chess.STARTING_FEN, moves=[("e2e4", "cp", 300), ("a2a3", "cp", 0)])
    assert for_white(values, chess.WHITE) == win_probability("cp", 300)
    assert for_white(values, chess.BLACK) == pytest.approx(1 - win_probability("cp", 300))


@pytest.mark.parametrize(
    "wrong", [{"illegal": "shrug"}, {"max_plies": 0}, {"resign_below": 0.6}, {"value_limit": 2000}]
)
def test_senseless_rules_are_refused(wrong: dict[str, object]) -> None:
    """A limit that no value can pass, or a rule nobody knows, is an error and not ignored."""
    with pytest.raises(ValueError):
        Rules(**wrong)  # type: ignore[arg-type]
