"""The files of ../shared/data/chess are read as they are; nothing in them is refused."""

from __future__ import annotations

from collections import Counter

import pytest

from rlvr.testing.tools import shared_data
from rlvr_chess.questions.records import EnvironmentStep, PolicyPosition, Solution
from rlvr_chess.rows import Row, read_data

_SUITES = {"wac": 207, "ecm": 128, "arasan2024": 148, "iq4": 137, "bt2630": 25, "eet": 69}
_SUITES |= {"pet": 30, "sts_v6": 858, "bratko_kopec": 15}


@pytest.mark.one_of(99, "puzzles", "endgames", "wac", "bt2630", "eet", "pet", "bratko")
@pytest.mark.parametrize(
    ("name", "kind", "count"),
    [
        ("policy_action_values.jsonl", PolicyPosition, 700),
        ("env_transitions.jsonl", EnvironmentStep, 3645),
        ("puzzles_lichess.csv", Solution, 1393),
        ("stalemate_zone.fen", PolicyPosition, 487),
        ("endgames.fen", PolicyPosition, 1774),
        *((f"epd/{name}.epd", Solution, count) for name, count in _SUITES.items()),
    ],
)
def test_every_row_is_a_question(name: str, kind: type, count: int) -> None:
    """As many rows as the README counts, all of one kind, ids unique."""
    data = read_data(shared_data("chess", name))
    rows = [row for row in data.rows if isinstance(row, Row)]
    assert len(rows) == len(data.rows) == count
    assert {type(row.payload) for row in rows} == {kind}
    assert len({row.id for row in rows}) == count


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(600)  # under load it took longer than the usual limit
def test_the_folder_is_one_data_set() -> None:
    """Transitions, values, puzzles and suites are questions; the rest is material for games."""
    data = read_data(shared_data("chess"))
    rows = [row for row in data.rows if isinstance(row, Row)]
    assert len(rows) == len(data.rows)
    assert Counter(type(row.payload).__name__ for row in rows) == {
        "EnvironmentStep": 3645,
        "PolicyPosition": 700,
        "Solution": 1393 + sum(_SUITES.values()),
    }
    found = data.material
    assert (len(found.positions), len(found.games), len(found.openings)) == (10426, 691, 968)
