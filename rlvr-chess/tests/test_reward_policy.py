from __future__ import annotations

import math

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr import Reward
from rlvr_chess.questions.grammar import PolicyAnswer
from rlvr_chess.rewards.policy import WEIGHTS, policy_reward
from rlvr_chess.values import ActionValues

SCORES = [
    *[("a2a3", "cp", 100), ("b2b3", "cp", 99), ("c2c3", "cp", 50), ("d2d3", "cp", 0)],
    *[("e2e3", "cp", -50), ("f2f3", "cp", -52), ("g2g3", "cp", -300), ("h2h3", "mate", -2)],
]
VALUES = ActionValues(fen=chess.STARTING_FEN, moves=SCORES)
FIVE = ("a2a3", "b2b3", "c2c3", "d2d3", "e2e3")
TRUE = ("1.00", "0.99", "0.50", "0.00", "-0.50")
# Win probabilities by hand: 1 / (1 + exp(-.00368208 cp))
T = {"a2a3": 0.59103, "b2b3": 0.59014, "c2c3": 0.54590, "d2d3": 0.50000, "e2e3": 0.45410}
T |= {"f2f3": 0.45228, "g2g3": 0.24887, "h2h3": 0.00063}


def judged(
    moves: tuple[str, ...] = FIVE, evals: tuple[str, ...] = TRUE, best: str = "a2a3"
) -> Reward:
    return policy_reward(VALUES, PolicyAnswer(moves, evals, best))


def parts(reward: Reward) -> dict[str, float]:
    """The components before their weights."""
    return {name: reward.components[name] / weight for name, weight in WEIGHTS.items()}


def test_win_probabilities_of_the_example() -> None:
    """The table that the hand-worked numbers below stand on."""
    for move, expected in T.items():
        assert VALUES.table[move] == pytest.approx(expected, abs=5e-6)


def test_the_right_line_earns_exactly_one() -> None:
    """All components are full and their sum is 1.0, not nearly."""
    assert judged().value == 1.0
    assert judged().score01 == 1.0
    assert parts(judged()) == dict.fromkeys(WEIGHTS, 1.0)
    assert sum(WEIGHTS.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("best", "part", "right"),
    [
        ("b2b3", 1.0, 1.0),  # regret .00089: within the band
        ("c2c3", math.exp(-(0.04513 - 0.005) / 0.05), 0.0),
        ("d2d3", math.exp(-(0.09103 - 0.005) / 0.05), 0.0),
        ("g2g3", math.exp(-(0.34216 - 0.005) / 0.05), 0.0),
        ("h2h3", math.exp(-(0.59040 - 0.005) / 0.05), 0.0),
    ],
)
def test_the_choice_is_paid_by_regret(best: str, part: float, right: float) -> None:
    """Moves within .005 of the best are as good; beyond, e-fold every .05."""
    reward = judged(best=best)
    assert parts(reward)["best"] == pytest.approx(part, abs=1e-4)
    assert reward.score01 == right
    assert reward.evidence["regret"] == pytest.approx(T["a2a3"] - T[best], abs=2e-5)


def test_an_illegal_choice_earns_the_format_alone() -> None:
    """All else may be right: .05."""
    reward = judged(best="e2e5")
    assert reward.value == 0.05
    assert reward.score01 == 0.0
    assert {name for name, part in reward.components.items() if part} == {"format"}
    assert "e2e5 is not legal" in reward.evidence["why"]


@pytest.mark.parametrize(
    ("moves", "part"),
    [
        (FIVE[::-1], 1.0),
        (("a2a3", "b2b3", "c2c3", "d2d3", "f2f3"), 1.0),  # .00182 below the fifth: a tie
        (("a2a3", "b2b3", "c2c3", "e2e3", "f2f3"), 1.0),
        (("a2a3", "b2b3", "c2c3", "d2d3", "g2g3"), 0.8),
        (("a2a3", "b2b3", "c2c3", "d2d3", "a2a3"), 0.8),  # a repeat counts once
        (("a2a3", "b2b3", "c2c3", "d2d3", "a1a8"), 0.6),  # four good less one illegal
        (("a2a3", "b2b3", "a1a8", "a1a8", "a1a8"), 0.0),
        (("a2a3", "a2a3", "a2a3", "a2a3", "a2a3"), 0.2),
        (("a1a8", "a1a7", "a1a6", "a1a5", "a1a4"), 0.0),
    ],
)
def test_candidates(moves: tuple[str, ...], part: float) -> None:
    """Distinct moves among the five best, less illegal ones, over five, at least none."""
    assert parts(judged(moves=moves))["candidates"] == pytest.approx(part)


@pytest.mark.parametrize(
    ("moves", "evals", "part"),
    [
        (FIVE, ("0.00",) * 5, (0.0897 + 0.0986 + 0.541 + 1.0 + 0.541) / 5),
        (FIVE, ("6.00", "5.99", "5.50", "5.00", "4.50"), 0.0),
        (FIVE, ("1.00", "0.99", "0.50", "0.00", "0.50"), 4.0 / 5 + 0.0821 / 5),  # a wrong sign
        (("a2a3",) * 5, ("1.00",) * 5, 0.2),
        (("a2a3",) * 5, ("9.00", *("1.00",) * 4), 0.0),  # the first of a repeated move counts
        (("a2a3", "b2b3", "c2c3", "d2d3", "a1a8"), TRUE, 0.8),
    ],
)
def test_evals(moves: tuple[str, ...], evals: tuple[str, ...], part: float) -> None:
    """Mean over the five places of how close a legal move's first evaluation comes."""
    assert parts(judged(moves=moves, evals=evals))["evals"] == pytest.approx(part, abs=1e-3)


def test_mates_are_the_ends_of_the_scale() -> None:
    """`-#2` is right for a move that is mated, and so is any number below minus 20 pawns."""
    moves = (*FIVE[:4], "h2h3")
    for written in ("-#2", "-#9", "-20.00", "-999.97"):
        assert parts(judged(moves=moves, evals=(*TRUE[:4], written)))["evals"] == 1.0
    assert parts(judged(moves=moves, evals=(*TRUE[:4], "#2")))["evals"] == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("evals", "best", "part"),
    [
        (TRUE, "a2a3", 1.0),
        (TRUE, "b2b3", 0.0),
        (("0.50", "0.50", "0.10", "0.00", "0.00"), "b2b3", 1.0),  # a tie for the largest
        (("0.10", "0.00", "0.00", "0.00", "0.20"), "a2a3", 0.0),
        (("1.00", "#4", "0.00", "0.00", "0.00"), "b2b3", 1.0),
        (TRUE, "g2g3", 0.0),  # not among the candidates
    ],
)
def test_consistency(evals: tuple[str, ...], best: str, part: float) -> None:
    """The line chooses what it rates highest."""
    assert parts(judged(evals=evals, best=best))["consistency"] == part


def test_what_the_predecessor_paid_for() -> None:
    """Its hacks (1.000, .966, .954, .847, .159 there) lose what they leave out here."""
    five_times = judged(moves=("a2a3",) * 5, evals=("1.00",) * 5)
    assert five_times.value == pytest.approx(0.05 + 0.60 + 0.03 + 0.03 + 0.05)
    off_by_five = judged(evals=("6.00", "5.99", "5.50", "5.00", "4.50"))
    assert off_by_five.value == pytest.approx(0.85)
    not_in_moves = judged(
        moves=("b2b3", "c2c3", "d2d3", "e2e3", "f2f3"),
        evals=("0.99", "0.50", "0.00", "-0.50", "-0.52"),
    )
    assert not_in_moves.value == pytest.approx(0.95)
    assert judged(moves=("a1a8",) * 5, best="a1a8").value == 0.05


def test_the_reward_is_no_constant() -> None:
    """Its last version gave every legal line 0.2124: each choice here has its own reward."""
    rewards = [judged(best=move).value for move in ("a2a3", "c2c3", "d2d3", "e2e3", "g2g3")]
    assert rewards == sorted(set(rewards), reverse=True)
    assert rewards[0] - rewards[-1] > 0.6


def test_permuting_candidates_with_their_evaluations_changes_nothing() -> None:
    """Order carries no credit: the predecessor's rows are shuffled."""
    line = list(zip(FIVE, ("0.90", "0.10", "0.52", "0.00", "-3.00"), strict=True))
    expected = judged(evals=tuple(e for _, e in line)).components
    for shift in range(5):
        turned = line[shift:] + line[:shift]
        moves, evals = zip(*turned, strict=True)
        found = judged(moves=moves, evals=evals).components
        assert found == pytest.approx(dict(expected))


def test_components_sum_to_the_value_and_evidence_is_plain() -> None:
    """What is shown adds up, and can be written as JSON."""
    reward = judged(moves=("a2a3", "b2b3", "g2g3", "d2d3", "a2a3"), best="c2c3")
    assert math.fsum(reward.components.values()) == reward.value
    assert set(reward.components) == set(WEIGHTS)
    assert reward.evidence["best_move"] == "a2a3"
    assert reward.evidence["best_score"] == "1.00"
    assert reward.evidence["score"] == "0.50"


MOVES = st.sampled_from([*T, "a1a8", "e2e5", "e7e8q"])
EVALS = st.one_of(
    st.integers(-999999, 999999).map(
        lambda cp: f"{'-' * (cp < 0)}{abs(cp) // 100}.{abs(cp) % 100:02d}"
    ),
    st.integers(1, 9999).map("#{}".format),
)


@settings(deadline=None)  # a busy machine is not a failure
@given(
    moves=st.lists(MOVES, min_size=5, max_size=5),
    evals=st.lists(EVALS, min_size=5, max_size=5),
    best=MOVES,
)
def test_no_line_earns_more_than_the_right_one(
    moves: list[str], evals: list[str], best: str
) -> None:
    """Any line lies within 0..1, and a full reward means that the choice is as good as the best."""
    reward = judged(tuple(moves), tuple(evals), best)
    assert 0.05 <= reward.value <= 1.0
    if reward.value == 1.0:
        assert reward.score01 == 1.0
        assert best in moves
    better = judged(tuple(moves), tuple(evals), "a2a3")
    assert parts(better)["best"] >= parts(reward)["best"]
