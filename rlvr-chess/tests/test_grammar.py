from __future__ import annotations

import math

import chess
import pytest

from rlvr_chess.questions.grammar import (
    PolicyAnswer,
    Profile,
    State,
    environment_prompt,
    environment_text,
    eval_text,
    eval_win_probability,
    parse_environment,
    parse_policy,
    policy_prompt,
    policy_text,
    policy_text_of,
)
from rlvr_chess.questions.transition import transition
from rlvr_chess.values import ActionValues

START = chess.STARTING_FEN
AFTER = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"
LINE = " e2e4 d2d4 g1f3 c2c4 g2g3 E: 0.35 0.30 -0.05 #3 -#12 B: e2e4"
STATE = f"{AFTER}+0.001+0+0"
PREDECESSOR = (
    "P: 2b3k1/Q4rqn/p2p4/4p3/p6p/2PP3P/BP3PP1/R5K1 b - - 0 34                                    "
    " M: a4a3 c8f5 h7f6 h7g5 h7f8      E: -3.06 -2.82 -3.21 -3.16 -2.3            B: h7f6"
)
"""A row of the predecessor, as its generator padded it (design notes, section 1.1)."""


def test_a_line_reads() -> None:
    """Prompt and answer join to one line; the parts come out as they were written."""
    assert policy_prompt(START) + LINE == f"P: {START} M:{LINE}"
    assert parse_policy(LINE, 5) == PolicyAnswer(
        ("e2e4", "d2d4", "g1f3", "c2c4", "g2g3"), ("0.35", "0.30", "-0.05", "#3", "-#12"), "e2e4"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        LINE.lstrip(),
        " " + LINE,
        LINE + " ",
        LINE + "\n",
        LINE + "\r",
        LINE + "\x00",
        LINE + " B: d2d4",
        LINE + "<|endoftext|>",
        "I think" + LINE,
        LINE.replace(" d2d4", "  d2d4"),
        LINE.replace(" d2d4", "\td2d4"),
        LINE.replace(" d2d4", "\xa0d2d4"),
        LINE.replace(" E:", "E:"),
        LINE.replace("E: ", "E:"),
        LINE.replace("B: ", "b: "),
        LINE.replace("g2g3", "g2g3k"),
        LINE.replace("g2g3", "g2g3Q"),
        LINE.replace("g2g3", "G2G3"),
        LINE.replace("g2g3", "g2g9"),
        LINE.replace("g2g3", "0000"),
        LINE.replace("g2g3", "g３g4"),
        LINE.replace("0.35", "+0.35"),
        LINE.replace("0.35", "0.3"),
        LINE.replace("0.35", "0.350"),
        LINE.replace("0.35", ".35"),
        LINE.replace("0.35", "0,35"),
        LINE.replace("0.35", "--0.35"),
        LINE.replace("0.35", "3.5e1"),
        LINE.replace("0.35", "inf"),
        LINE.replace("0.35", "nan"),
        LINE.replace("0.35", "12345.00"),
        LINE.replace("0.35", "٠.٣٥"),
        LINE.replace("0.35", "０.３５"),
        LINE.replace("#3", "#0"),
        LINE.replace("#3", "#03"),
        LINE.replace("#3", "#-3"),
        LINE.replace("#3", "#12345"),
        LINE.replace("#3", "#٣"),
        LINE.replace(" #3", ""),
        LINE.replace(" c2c4", "").replace(" #3", ""),
        LINE.replace(" c2c4", " c2c4 a2a3"),
    ],
)
def test_anything_else_is_no_line(text: str) -> None:
    """Text before or after, other blanks, digits that are not ASCII, too few or too many."""
    assert text != LINE
    assert parse_policy(text, 5) is None


@pytest.mark.parametrize("written", ["-0.00", "0.00", "00.35", "9999.99", "-9999.99", "#9999"])
def test_odd_numbers_that_are_numbers(written: str) -> None:
    """Negative zero, leading zeros and four digits are within the grammar, and finite."""
    answer = parse_policy(LINE.replace("0.35", written), 5)
    assert answer is not None
    assert answer.evals[0] == written
    assert 0.0 < eval_win_probability(written) < 1.0


def test_fewer_legal_moves_want_fewer_candidates() -> None:
    """The position says how many: two candidates are right for two moves, wrong for five."""
    line = " e1d1 e1d2 E: -1.00 -2.00 B: e1d1"
    assert parse_policy(line, 2) is not None
    assert parse_policy(line, 1) is None
    assert parse_policy(line, 5) is None
    assert parse_policy(" e1d1 E: -1.00 B: e1d1", 1) is not None


def test_what_evaluations_mean() -> None:
    """Pawns through the sigmoid; beyond 20 pawns and for mates nothing changes."""
    assert eval_win_probability("0.00") == eval_win_probability("-0.00") == 0.5
    assert eval_win_probability("1.00") == pytest.approx(1 / (1 + math.exp(-0.368208)))
    top = 1 / (1 + math.exp(-0.00368208 * 2000))
    for won in ("20.00", "99.00", "9999.99", "#1", "#300", "999.99"):
        assert eval_win_probability(won) == top
    for lost in ("-20.00", "-#1", "-999.97"):
        assert eval_win_probability(lost) == pytest.approx(1 - top)
    assert eval_win_probability("0.29") == eval_win_probability("00.29")


def lively(fen: str = START) -> ActionValues:
    """Seven moves with every kind of score; the engine's order."""
    moves = [("g1f3", "mate", 3), ("e2e4", "cp", 1234), ("d2d4", "cp", 35), ("c2c4", "cp", -5)]
    moves += [("a2a3", "cp", -200), ("b2b3", "mate", -12), ("h2h4", "mate", -1)]
    return ActionValues(fen=fen, moves=moves)


def test_the_right_line() -> None:
    """Five best moves in the engine's order with their values, and the best one."""
    text = policy_text_of(lively())
    assert text == " g1f3 e2e4 d2d4 c2c4 a2a3 E: #3 12.34 0.35 -0.05 -2.00 B: g1f3"


def test_the_right_line_does_not_trust_the_order_of_a_table() -> None:
    """The best move is the one of the largest value, for either colour, wherever it stands."""
    for fen in (START, AFTER):
        backwards = ActionValues(fen=fen, moves=lively().moves[::-1])
        answer = parse_policy(policy_text_of(backwards), 5)
        assert answer is not None
        assert answer.best == answer.moves[0] == "g1f3"


@pytest.mark.parametrize("profile", ["canonical", "rookworld"])
def test_written_lines_read_back(profile: Profile) -> None:
    """What is written parses, and each evaluation is the table's win probability exactly."""
    values = lively()
    for seed in (None, 1, 2):
        answer = parse_policy(policy_text_of(values, profile, seed), 5, profile)
        assert answer is not None
        assert answer.best == "g1f3"
        assert set(answer.moves) == set(list(values.table)[:5])
        for move, written in zip(answer.moves, answer.evals, strict=True):
            assert eval_win_probability(written) == values.table[move]


def test_shuffles_are_seeded() -> None:
    """One seed, one order; rookworld is always shuffled; other seeds give other orders."""
    values = lively()
    assert policy_text_of(values, "canonical", 1) == policy_text_of(values, "canonical", 1)
    assert len({policy_text_of(values, "canonical", seed) for seed in range(9)}) > 3
    assert policy_text_of(values, "rookworld") == policy_text_of(values, "rookworld", 0)


def test_rookworld_is_padded_as_the_predecessor_did() -> None:
    """Our prompt and answer, from the same parts, are its row to the character."""
    fen = "2b3k1/Q4rqn/p2p4/4p3/p6p/2PP3P/BP3PP1/R5K1 b - - 0 34"
    moves = ["a4a3", "c8f5", "h7f6", "h7g5", "h7f8"]
    evals = ["-3.06", "-2.82", "-3.21", "-3.16", "-2.3"]
    generated = f"P: {fen:90}M: {' '.join(moves):30}E: {' '.join(evals):40}B: h7f6"
    ours = policy_prompt(fen, "rookworld") + policy_text(moves, evals, "h7f6", "rookworld")
    assert ours == generated
    assert " ".join(ours.split()) == " ".join(PREDECESSOR.split())
    assert ours.split("M:")[1] == PREDECESSOR.split("M:")[1]


def test_rookworld_reads_loosely_only_where_it_must() -> None:
    """Runs of spaces count as one and decimals may be short; all else is as strict as ours."""
    text = " a4a3 c8f5 h7f6 h7g5 h7f8      E: -3.06 -2.82 999.99 -999.97 -2.3      B: h7f6"
    answer = parse_policy(text, 5, "rookworld")
    assert answer is not None
    assert answer.evals == ("-3.06", "-2.82", "999.99", "-999.97", "-2.3")
    assert parse_policy(" ".join(["", *text.split()]), 5, "rookworld") == answer
    assert parse_policy(text, 5, "canonical") is None
    for wrong in (text.strip(), text + " ", text + "\n", text.replace("-2.82", "#3")):
        assert parse_policy(wrong, 5, "rookworld") is None
    for wrong in (text.replace("-2.82", "-2"), text.replace("      E", "\tE")):
        assert parse_policy(wrong, 5, "rookworld") is None


def test_rookworld_prints_mates_as_the_predecessor() -> None:
    """Mate in one is 999.99, being mated in three is -999.97; pawns as Python prints them."""
    moves = [("a2a3", "mate", 1), ("b2b3", "mate", -3), ("c2c3", "cp", -230), ("d2d3", "cp", 57)]
    values = ActionValues(fen=START, moves=moves)
    texts = [eval_text(values, move, "rookworld") for move in values.table]
    assert texts == ["999.99", "-999.97", "-2.3", "0.57"]


def test_environment_prompts() -> None:
    """Position, move, and up to ten last moves where there are any; each ends in a plus."""
    assert environment_prompt(START, "e2e4") == f"A: {START}+e2e4+"
    assert environment_prompt(START, "e2e4", ["e2e4"]) == f"A: {START}+e2e4+e2e4+"
    many = [f"a{n}b{n}" for n in range(1, 9)] + ["c1c2", "c3c4", "e2e4"]
    assert environment_prompt(START, "e2e4", many) == f"A: {START}+e2e4+{' '.join(many[1:])}+"
    assert environment_prompt(START, "e2e4", profile="rookworld") == f"A: {START}+e2e4+e2e4+"


def test_a_state_reads() -> None:
    """The right answer is the four texts with a plus between them."""
    truth = transition(START, "e2e4")
    assert environment_text(truth) == STATE
    assert parse_environment(STATE) == State(AFTER, "0.001", "0", "0")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " " + STATE,
        STATE + " ",
        STATE + "\n",
        STATE + "+0",
        STATE + "<|endoftext|>",
        STATE[:-2],
        STATE.replace("0.001", "0.0010"),
        STATE.replace("0.001", "1"),
        STATE.replace("0.001", "+1.0"),
        STATE.replace("0.001", "0.002"),
        STATE.replace("0.001", "0.００1"),
        STATE.replace("+0+0", "+0+2"),
        STATE.replace("+0+0", "+0+True"),
        STATE.replace("+0+0", "+0+٠"),
        STATE.replace("+0+0", "+00+0"),
        STATE.replace(" b ", "  b "),
        STATE.replace(" b ", " B "),
        STATE.replace(" b ", " "),
        STATE.replace("KQkq", "QKkq"),
        STATE.replace("KQkq", ""),
        STATE.replace(" - ", " e4 "),
        STATE.replace("8/8/4P3/8", "8/8/4P4/8"),
        STATE.replace("8/8/4P3/8", "8/8/4P21/8"),
        STATE.replace("8/8/4P3/8", "8/4P3/8"),
        STATE.replace("8/8/4P3/8", "8/8/4P3/8/8"),
        STATE.replace("8/8/4P3/8", "8/8/4X3/8"),
        STATE.replace("8/8/4P3/8", "８/8/4P3/8"),
        STATE.replace(" 0 1+", " 0 1_0+"),
        STATE.replace(" 0 1+", " 0 99999+"),
        STATE.replace(" 0 1+", " -1 1+"),
        STATE.replace(" 0 1+", " 0 ١+"),
    ],
)
def test_anything_else_is_no_state(text: str) -> None:
    """A wrong number spelling, a flag that is no bit, a board that is not 8x8."""
    assert text != STATE
    assert parse_environment(text) is None


def test_rookworld_states() -> None:
    """Rewards in either spelling and the trailing blank of the predecessor's rows are read."""
    for written, meant in [("1", "1.0"), ("1.0", "1.0"), ("-1", "-1.0"), ("0.5", "0.5")]:
        text = STATE.replace("0.001", written)
        answer = parse_environment(text + " ", "rookworld")
        assert answer is not None
        assert answer.reward == meant
    assert parse_environment(STATE + "\n", "rookworld") is None
    assert parse_environment(STATE.replace(" b ", "  b "), "rookworld") is None
