from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from rlvr.testing.tools import shared_data
from rlvr_chess.questions.grammar import environment_text, parse_environment
from rlvr_chess.questions.transition import transition
from rlvr_chess.rewards.environment import environment_reward


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    path = shared_data("chess/env_transitions.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_golden_transition_agrees(rows: list[dict[str, Any]]) -> None:
    """All 3,645 rows of 29 categories: our state, reward and flags are those of the file."""
    wrong = Counter()
    for row in rows:
        found = transition(row["fen"], row["uci"])
        said = (found.fen, float(found.reward), int(found.terminated), int(found.truncated))
        wrong[row["category"]] += said != tuple(
            row[name] for name in ("new_fen", "reward", "terminated", "truncated")
        )
    assert (len(rows), len(wrong)) == (3645, 29)
    assert +wrong == Counter()


def test_the_golden_answer_is_right_and_a_copy_is_not(rows: list[dict[str, Any]]) -> None:
    """The file's state earns 1.0 in every row; the input earns .05, or .45 where it stays."""
    for row in rows:
        truth = transition(row["fen"], row["uci"])
        right = parse_environment(environment_text(truth))
        copied = parse_environment(f"{row['fen']}+0.001+0+0")
        assert right is not None
        assert copied is not None
        reward = environment_reward(row["fen"], truth, right)
        assert (reward.value, reward.score01) == (1.0, 1.0)
        floor = environment_reward(row["fen"], truth, copied)
        assert floor.value == pytest.approx(0.05 if truth.is_legal else 0.45)
        assert floor.score01 == 0.0
