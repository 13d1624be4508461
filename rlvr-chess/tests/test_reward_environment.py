from __future__ import annotations

import math

import pytest

from rlvr import Reward
from rlvr_chess.questions.grammar import environment_text, parse_environment
from rlvr_chess.questions.transition import transition
from rlvr_chess.rewards.environment import WEIGHTS, environment_reward, wrong_parts

CASTLING = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 5 20"
PASSANT = "4k3/p2p4/8/4P3/8/8/8/4K3 b - - 0 1"


def judged(fen: str, uci: str, text: str = "", *, exact_only: bool = False) -> Reward:
    """The reward of `text`, by default of the right answer."""
    truth = transition(fen, uci)
    answer = parse_environment(text or environment_text(truth))
    assert answer is not None
    return environment_reward(fen, truth, answer, exact_only=exact_only)


def changed(fen: str, uci: str, old: str, new: str) -> Reward:
    """The reward of the right answer with one text in it exchanged."""
    right = environment_text(transition(fen, uci))
    assert old in right
    return judged(fen, uci, right.replace(old, new))


def test_the_right_state_earns_exactly_one() -> None:
    """All components are full and their sum is 1.0, not nearly; legal or not."""
    for uci in ("e1g1", "a1a8", "e1e8", "e2e4"):
        reward = judged(CASTLING, uci)
        assert reward.value == reward.score01 == 1.0
        assert dict(reward.components) == WEIGHTS
    assert sum(WEIGHTS.values()) == pytest.approx(1.0)


def test_a_copied_input_earns_the_format_alone() -> None:
    """.05 on a legal move, whatever else stays equal; the predecessor paid .895."""
    for uci in ("e1g1", "a1a8", "e1e2"):
        reward = judged(CASTLING, uci, f"{CASTLING}+0.001+0+0")
        assert reward.value == pytest.approx(0.05)
        flipped = judged(CASTLING, uci, f"{CASTLING.replace(' w ', ' b ')}+0.001+0+0")
        assert flipped.value == pytest.approx(0.05)


def test_a_copied_input_of_an_illegal_move_misses_the_flags() -> None:
    """The board is right, since it stays: .45, and 1.0 with the flags of an illegal move."""
    assert judged(CASTLING, "e1h1", f"{CASTLING}+0.001+0+0").value == pytest.approx(0.45)
    assert judged(CASTLING, "e1h1", f"{CASTLING}+-1.0+0+1").value == 1.0


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        (" 6 20", " 5 20", 0.45),  # one clock
        (" 6 20", " 6 21", 0.45),
        (" 6 20", " 06 20", 0.45),  # compared as texts: nothing is repaired
        (" kq ", " KQkq ", 0.45),
        (" - 6", " e3 6", 0.45),
        ("+0.001+0+0", "+0.5+0+0", 0.45),
        ("+0.001+0+0", "+0.001+1+0", 0.45),
        ("+0.001+0+0", "+0.001+0+1", 0.45),
        (" b ", " w ", 0.50),  # the side counts in `exact` alone
        (" 6 20", " 5 21", 0.40),
        ("kq - 6 20+0.001+0+0", "- e3 7 21+1.0+1+0", 0.25),  # only the board is right
    ],
)
def test_fields(old: str, new: str, value: float) -> None:
    """A wrong field costs its .05 and the half that exactness is worth."""
    reward = changed(CASTLING, "e1g1", old, new)
    assert reward.value == pytest.approx(value)
    assert reward.score01 == 0.0


@pytest.mark.parametrize(
    ("rank", "wrong"),
    [("R4RK1", 0), ("R3KR2", 2), ("R4K1R", 3), ("R6R", 3), ("R3K2R", 4), ("RRRRRRRR", 6)],
)
def test_placement_counts_the_squares_that_the_move_changes(rank: str, wrong: int) -> None:
    """Castling changes four squares; each wrong square of the answer costs a fourth."""
    right = environment_text(transition(CASTLING, "e1g1"))
    reward = judged(CASTLING, "e1g1", right.replace("R4RK1", rank))
    assert reward.components["placement"] == pytest.approx(0.20 * max(0, 1 - wrong / 4))
    if wrong:
        assert reward.value == pytest.approx(0.05 + reward.components["placement"])


def test_a_wrong_square_elsewhere_costs_as_much() -> None:
    """Squares that the move leaves alone must stay right: a lost rook on a8 is one of four."""
    right = environment_text(transition(CASTLING, "e1g1"))
    reward = judged(CASTLING, "e1g1", right.replace("r3k2r", "4k2r"))
    assert reward.value == pytest.approx(0.05 + 0.20 * 3 / 4)
    ruined = judged(CASTLING, "e1g1", right.replace("8/8/8", "pppppppp/8/8", 1))
    assert ruined.value == pytest.approx(0.05)


def test_en_passant_square_is_judged_as_python_chess_writes_it() -> None:
    """After d7d5 the square is due, since the capture is legal; after a7a5 it is an error."""
    assert changed(PASSANT, "d7d5", " d6 ", " - ").value == pytest.approx(0.45)
    assert changed(PASSANT, "a7a5", " - - ", " - a6 ").value == pytest.approx(0.45)


def test_exact_mode_is_all_or_nothing() -> None:
    """With `chess.exact` nothing but the whole right answer is paid."""
    right = environment_text(transition(CASTLING, "e1g1"))
    assert judged(CASTLING, "e1g1", exact_only=True).value == 1.0
    wrong = judged(CASTLING, "e1g1", right.replace(" 6 20", " 5 20"), exact_only=True)
    assert (wrong.value, wrong.score01, dict(wrong.components)) == (0.0, 0.0, {"exact": 0.0})


def test_components_sum_and_evidence_names_what_is_wrong() -> None:
    """A person reads what was expected and which parts were not."""
    reward = changed(CASTLING, "e1g1", " kq - 6", " KQkq - 5")
    assert math.fsum(reward.components.values()) == reward.value
    assert reward.evidence["wrong"] == ["castling", "halfmove"]
    assert reward.evidence["truth"] == environment_text(transition(CASTLING, "e1g1"))


def test_wrong_parts_names_each() -> None:
    """All six fields and the outcome can be wrong at once."""
    truth = transition(CASTLING, "e1g1")
    answer = parse_environment("8/8/8/8/8/8/8/8 w KQ e3 9 9+1.0+1+0")
    assert answer is not None
    assert wrong_parts(truth, answer) == (
        *("placement", "side", "castling", "en_passant", "halfmove", "fullmove"),
        "outcome",
    )
