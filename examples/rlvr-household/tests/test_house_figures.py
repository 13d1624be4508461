from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from rlvr import BuildContext
from rlvr_household.config import HouseConfig
from rlvr_household.play import figures, play_solver, wilson
from rlvr_household.task import HouseTask
from rlvr_sad.formats.transcript import Transcript


def note(done: bool, turns: int, **counts: int) -> dict[str, Any]:
    zero = dict.fromkeys(("matched", "sensible", "impossible", "thought_tokens"), 0)
    return {"done": done, "turns": turns, **zero, **counts}


def test_figures_by_hand() -> None:
    """Two episodes: shares and lengths are over turns, success over episodes."""
    episodes = [
        note(True, 4, matched=4, sensible=4, thought_tokens=20),
        note(False, 6, matched=1, sensible=2, impossible=3, thought_tokens=10),
    ]
    found = {figure.name: figure for figure in figures(episodes, "greedy")}
    values = {name: figure.value for name, figure in found.items()}
    assert values == {
        "house/success": 0.5,
        "house/steps": 5.0,
        "house/steps_solved": 4.0,
        "house/reasoning_tokens": 3.0,
        "house/cot_match": 0.5,
        "house/action_match": 0.6,
        "house/impossible": 0.3,
    }
    assert all(figure.low <= figure.value <= figure.high for figure in found.values())
    assert {figure.note for figure in found.values()} == {"greedy"}


def test_nothing_solved_has_no_steps() -> None:
    """A figure without a case has no value and says n = 0."""
    found = {figure.name: figure for figure in figures([note(False, 3)])}
    assert math.isnan(found["house/steps_solved"].value)
    assert found["house/steps_solved"].n == 0


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634)],
)
def test_wilson_against_published_values(hits: int, n: int, low: float, high: float) -> None:
    """Intervals of 10 cases as tables give them."""
    assert wilson(hits, n) == pytest.approx((low, high), abs=1e-4)


def test_wilson_refuses_no_share() -> None:
    """More hits than cases, or no case, is an error."""
    for hits, n in ((2, 1), (0, 0), (-1, 3)):
        with pytest.raises(ValueError, match="no share"):
            wilson(hits, n)


def test_a_written_trajectory_is_read_with_its_spans() -> None:
    """The format reader finds each turn's thought and action, and nothing of the house's words."""
    task = HouseTask(HouseConfig(train=20, test=1), BuildContext())
    for problem in task.problems("train"):
        played = asyncio.run(play_solver(problem, steps=20))
        assert played.notes["done"]
        assert played.notes["matched"] == played.notes["turns"]
        (draft,) = Transcript().read({"id": problem.id, "text": played.text})
        kinds = [piece.type for piece in draft.pieces]
        turns = played.notes["turns"]
        assert kinds == ["other", *["reasoning", "action", "observation"] * turns]
