"""The order table of docs/chess/rewards.md, on real positions."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable

import pytest

from rlvr.testing.tools import shared_data
from rlvr_chess.fen import flip, flip_move
from rlvr_chess.questions.grammar import PolicyAnswer, parse_policy, policy_text_of
from rlvr_chess.questions.transition import legal_moves
from rlvr_chess.rewards.policy import policy_reward
from rlvr_chess.values import ActionValues

Answer = Callable[[ActionValues, random.Random], PolicyAnswer]


@pytest.fixture(scope="module")
def positions() -> list[ActionValues]:
    """Every position of the data with at least six legal moves."""
    path = shared_data("chess/policy_action_values.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    values = [ActionValues(fen=row["fen"], moves=row["moves"]) for row in rows]
    return [value for value in values if len(value.moves) >= 6]


def right(values: ActionValues, rng: random.Random, seed: int | None = None) -> PolicyAnswer:
    answer = parse_policy(policy_text_of(values, shuffle_seed=seed), 5)
    assert answer is not None
    return answer


def shuffled(values: ActionValues, rng: random.Random) -> PolicyAnswer:
    return right(values, rng, seed=rng.randrange(100))


def worst_of_five(values: ActionValues, rng: random.Random) -> PolicyAnswer:
    answer = right(values, rng)
    return PolicyAnswer(answer.moves, answer.evals, answer.moves[-1])


def all_zero(values: ActionValues, rng: random.Random) -> PolicyAnswer:
    answer = right(values, rng)
    return PolicyAnswer(answer.moves, ("0.00",) * 5, answer.best)


def best_five_times(values: ActionValues, rng: random.Random) -> PolicyAnswer:
    best = right(values, rng).best
    return PolicyAnswer((best,) * 5, (values.score_text(best),) * 5, best)


def random_moves_right_choice(values: ActionValues, rng: random.Random) -> PolicyAnswer:
    moves = tuple(rng.sample(sorted(values.table), 5))
    return PolicyAnswer(moves, ("0.00",) * 5, right(values, rng).best)


def random_legal(values: ActionValues, rng: random.Random) -> PolicyAnswer:
    moves = tuple(rng.sample(sorted(values.table), 5))
    return PolicyAnswer(moves, ("0.00",) * 5, moves[0])


def illegal_choice(values: ActionValues, rng: random.Random) -> PolicyAnswer:
    answer = right(values, rng)
    return PolicyAnswer(answer.moves, answer.evals, "a1a1")


@pytest.mark.parametrize(
    ("answer", "mean"),
    [
        (right, 1.00),
        (shuffled, 1.00),
        (all_zero, 0.897),
        (best_five_times, 0.760),
        (random_moves_right_choice, 0.724),
        (worst_of_five, 0.563),
        (random_legal, 0.297),
        (illegal_choice, 0.05),
    ],
)
def test_order_table(positions: list[ActionValues], answer: Answer, mean: float) -> None:
    """The mean reward of each kind of answer is the table's, within .01."""
    rewards = [
        policy_reward(values, answer(values, random.Random(seed))).value
        for seed in range(3)
        for values in positions
    ]
    assert len(positions) == 652
    assert statistics.mean(rewards) == pytest.approx(mean, abs=0.01)


def test_random_mover(positions: list[ActionValues]) -> None:
    """A random legal move agrees with the engine's in 4.0 %, and gives away .277 on average."""
    means = [
        statistics.mean(position.regret(move) for move in position.table) for position in positions
    ]
    assert statistics.mean(means) == pytest.approx(0.277, abs=0.01)
    exact = statistics.mean(1 / len(position.table) for position in positions)
    assert exact == pytest.approx(0.040, abs=0.005)


def test_colours_are_alike(positions: list[ActionValues]) -> None:
    """The flipped position with flipped moves gives every answer the same components."""
    rng = random.Random(1)
    for values in positions:
        other = ActionValues(
            fen=flip(values.fen), moves=[(flip_move(m), k, v) for m, k, v in values.moves]
        )
        assert legal_moves(other.fen) == set(other.table)  # the moves are those of that side
        for answer in (
            shuffled(values, rng),
            worst_of_five(values, rng),
            random_legal(values, rng),
        ):
            turned = PolicyAnswer(
                tuple(map(flip_move, answer.moves)), answer.evals, flip_move(answer.best)
            )
            assert policy_reward(other, turned).components == (
                policy_reward(values, answer).components
            )


def test_the_right_line_is_the_best_move_for_both_colours(positions: list[ActionValues]) -> None:
    """B has no regret for White or for Black; the predecessor's label for Black was the worst."""
    regrets: dict[str, list[float]] = {"w": [], "b": []}
    for values in positions:
        best = right(values, random.Random(0)).best
        regrets[values.fen.split(" ")[1]].append(values.regret(best))
    assert {side: max(found) for side, found in regrets.items()} == {"w": 0.0, "b": 0.0}
    assert min(map(len, regrets.values())) > 200
