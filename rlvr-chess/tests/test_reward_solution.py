from __future__ import annotations

import chess
import pytest

from rlvr_chess.questions.grammar import PolicyAnswer
from rlvr_chess.questions.records import Solution
from rlvr_chess.rewards.solution import points, solution_reward, solutions

START = chess.STARTING_FEN
MATES = "6k1/5ppp/8/8/8/8/8/R3Q1K1 w - - 0 1"


def line(best: str) -> PolicyAnswer:
    return PolicyAnswer(("a2a3",) * 5, ("0.00",) * 5, best)


@pytest.mark.parametrize(
    ("record", "best", "value", "right"),
    [
        (Solution(fen=START, points={"e2e4": 1.0}), "e2e4", 1.0, 1.0),
        (Solution(fen=START, points={"e2e4": 1.0}), "d2d4", 0.05, 0.0),
        (Solution(fen=START, points={"e2e4": 1.0}), "e2e5", 0.05, 0.0),
        (Solution(fen=START, points={"e2e4": 1.0, "d2d4": 0.6}), "d2d4", 0.05 + 0.95 * 0.6, 0.0),
        (Solution(fen=START, points={"e2e5": 1.0}), "e2e5", 0.05, 0.0),  # illegal, though listed
        (Solution(fen=START, avoid=("f2f3",)), "e2e4", 1.0, 1.0),
        (Solution(fen=START, avoid=("f2f3",)), "f2f3", 0.05, 0.0),
        (Solution(fen=START, avoid=("f2f3",)), "f2f5", 0.05, 0.0),
        (Solution(fen=START, points={"e2e4": 1.0}, avoid=("f2f3",)), "d2d4", 0.05, 0.0),
        (Solution(fen=MATES, points={"a1a8": 1.0}, any_mate=True), "e1e8", 1.0, 1.0),
        (Solution(fen=MATES, points={"a1a8": 1.0}, any_mate=False), "e1e8", 0.05, 0.0),
        (Solution(fen=MATES, points={"a1a8": 1.0}, any_mate=True), "e1e7", 0.05, 0.0),
    ],
)
def test_points_of_the_choice(record: Solution, best: str, value: float, right: float) -> None:
    """.05 for the line, .95 times the points of its move; right means full points."""
    reward = solution_reward(record, line(best))
    assert reward.value == pytest.approx(value)
    assert reward.score01 == right
    assert sum(reward.components.values()) == pytest.approx(reward.value)


def test_solutions_are_the_moves_with_full_points() -> None:
    """What a reference may play: listed moves, any mate, or all but the avoided ones."""
    assert solutions(Solution(fen=START, points={"e2e4": 1.0, "d2d4": 0.6})) == {"e2e4"}
    assert solutions(Solution(fen=MATES, any_mate=True)) == {"a1a8", "e1e8"}
    assert len(solutions(Solution(fen=START, avoid=("f2f3",)))) == 19


def test_points_are_not_given_for_nothing() -> None:
    """A record that lists nothing pays nothing."""
    assert points(Solution(fen=START), "e2e4") == 0.0
