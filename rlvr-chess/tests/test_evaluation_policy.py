"""Figures of the policy task: hand-worked on one position, known floors on the delivered tables."""

from __future__ import annotations

import asyncio
import json
import random

import chess
import pytest

from rlvr import Metric
from rlvr.testing.fakes import ScriptedPolicy
from rlvr.testing.tools import shared_data
from rlvr_chess.asking import Player
from rlvr_chess.evaluation.policy import Judged, greedy_figures, sampled_figures
from rlvr_chess.fen import flip, flip_move
from rlvr_chess.questions.grammar import PolicyAnswer, policy_text, policy_text_of
from rlvr_chess.values import ActionValues, win_probability

FEN = "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1"
VALUES = ActionValues(
    fen=FEN,
    moves=[
        ("d1d8", "mate", 1),
        ("d1d7", "cp", 600),
        ("g2g3", "cp", 590),
        ("g1f1", "cp", 580),
        ("d1e1", "cp", 100),
        ("h2h3", "cp", 10),
        ("d1d2", "cp", -700),
    ],
)


def line(moves: str, evals: str, best: str) -> PolicyAnswer:
    return PolicyAnswer(tuple(moves.split()), tuple(evals.split()), best)


def by_name(figures: list[Metric]) -> dict[str, Metric]:
    found = {figure.name: figure for figure in figures}
    assert len(found) == len(figures), "every figure has a name of its own"
    return found


def test_a_position_worked_out_by_hand() -> None:
    """Regret, centipawns, overlap, evaluation error and signs of one line, from the definitions."""
    answer = line("d1d7 g2g3 d1d2 h2h3 d1d7", "6.00 -1.00 0.00 0.30 9.99", "d1d7")
    one = Judged(values=VALUES, answer=answer)
    assert one.is_legal
    assert not one.is_best
    assert one.regret == pytest.approx(win_probability("mate", 1) - win_probability("cp", 600))
    assert one.centipawns_lost == 1000  # 2000 for the mate, less 600, capped
    assert one.overlap == 2 / 5  # d1d7 and g2g3; d1d2 and h2h3 are not among the best five
    found = by_name(greedy_figures([one]))
    errors = [
        0.0,
        win_probability("cp", 590) - win_probability("cp", -100),
        0.5 - win_probability("cp", -700),
        win_probability("cp", 30) - win_probability("cp", 10),
    ]
    # the fifth slot repeats d1d7: it stands for d1d8, of which nothing is said
    errors.append(max(VALUES.best, 1 - VALUES.best))
    assert found["policy/eval_error"].value == pytest.approx(sum(errors) / 5)
    best = [win_probability("cp", cp) for cp in (600, 590, 580, 100)]
    zeros = [abs(0.5 - wp) for wp in [win_probability("mate", 1), *best]]
    assert found["policy/eval_error_baseline"].value == pytest.approx(sum(zeros) / 5)
    # of the four beyond 50 centipawns: g2g3 has the wrong sign, d1d2 and d1d8 have none
    assert found["policy/wrong_signs"].value == pytest.approx(3 / 4)
    # E orders d1d7 > h2h3 > d1d2 > g2g3, T orders d1d7 > g2g3 > h2h3 > d1d2: 4 of 6 pairs agree;
    # E leaves the four pairs of d1d8 without an order
    assert found["policy/kendall_tau"].value == pytest.approx((4 - 2) / (6 * 10) ** 0.5)


def test_an_illegal_or_malformed_answer_loses_everything() -> None:
    """Not legal, not best, the largest regret there is, 1000 centipawns."""
    for answer in (None, line("d1d8", "#1", "d1d9"), line("d1d8", "#1", "g1g3")):
        one = Judged(values=VALUES, answer=answer)
        assert not one.is_legal
        assert not one.is_best
        assert one.regret == VALUES.best - win_probability("mate", -1)
        assert one.centipawns_lost == 1000
    found = by_name(greedy_figures([Judged(values=VALUES, answer=None)]))
    assert found["policy/format"].value == 0.0
    assert found["policy/legal"].value == 0.0
    assert found["policy/kendall_tau"].value == 0.0
    assert found["policy/wrong_signs"].value == 1.0
    worst = [max(wp, 1 - wp) for wp in sorted(VALUES.table.values(), reverse=True)]
    error = sum(worst[: VALUES.count]) / VALUES.count
    assert found["policy/eval_error"].value == pytest.approx(error)
    assert {figure.n for name, figure in found.items() if name.count("/") == 1} == {1}


def test_naming_the_best_moves_with_an_even_score_is_the_baseline() -> None:
    """Who names the best moves and says 0.00 of each has the error of `eval_error_baseline`."""
    found = by_name(
        greedy_figures(
            [
                Judged(
                    values=values,
                    answer=line(
                        " ".join(uci for uci, _, _ in values.moves[: values.count]),
                        " ".join(["0.00"] * values.count),
                        values.moves[0][0],
                    ),
                )
                for values in delivered()[::4]
            ]
        )
    )
    error, zero = found["policy/eval_error"], found["policy/eval_error_baseline"]
    assert error.value == pytest.approx(zero.value)


def test_no_figure_is_better_for_what_is_left_unsaid() -> None:
    """Malformed, illegal and repeated moves make the figures worse, and the position counts."""
    right = line("d1d8 d1d7 g2g3 h2h3 d1d2", "#1 6.00 5.90 0.10 -7.00", "d1d8")
    good = Judged(values=VALUES, answer=right)
    alone = by_name(greedy_figures([good]))
    bad_answers = [
        None,
        line("g1g3 g1g4 a1a2 a1a3 a1a4", "6.00 6.00 6.00 6.00 6.00", "g1g3"),
        line("d1d8 d1d8 d1d8 d1d8 d1d8", "#1 #1 #1 #1 #1", "d1d8"),
        line("d1d8 g1g3 g1g3 g1g3 g1g3", "#1 #1 #1 #1 #1", "d1d8"),
    ]
    for answer in bad_answers:
        both = by_name(greedy_figures([good, Judged(values=VALUES, answer=answer)]))
        assert both["policy/kendall_tau"].value < alone["policy/kendall_tau"].value, answer
        assert both["policy/eval_error"].value > alone["policy/eval_error"].value, answer
        assert both["policy/wrong_signs"].value > alone["policy/wrong_signs"].value, answer
        for name in ("kendall_tau", "eval_error", "eval_error_baseline", "wrong_signs"):
            assert both[f"policy/{name}"].n == 2, (name, answer)


def test_naming_only_even_moves_says_nothing_of_the_clear_ones() -> None:
    """Five moves worth about 0.00 in place of five that win: every sign is wrong, and it counts."""
    winning = [(uci, "cp", 600) for uci in ("d1d8", "d1d7", "d1d6", "d1d5", "d1d4")]
    even = [(uci, "cp", 10) for uci in ("g2g3", "g1f1", "d1e1", "h2h3", "d1d2")]
    values = ActionValues(fen=FEN, moves=[*winning, *even])
    answer = line(" ".join(uci for uci, _, _ in even), " ".join(["-0.40"] * 5), "g2g3")
    signs = by_name(greedy_figures([Judged(values=values, answer=answer)]))["policy/wrong_signs"]
    assert (signs.value, signs.n) == (1.0, 1)
    quiet = ActionValues(fen=FEN, moves=[*even, ("d1d3", "cp", -600)])
    for one in (None, line("d1d3 g1f1 d1e1 h2h3 d1d2", "6.00 0.10 0.10 0.10 0.10", "d1d3")):
        signs = by_name(greedy_figures([Judged(values=quiet, answer=one)]))["policy/wrong_signs"]
        assert signs.n == 0, "no best move of the position has a sign, whatever is answered"


def test_every_figure_counts_every_position() -> None:
    """Whatever is answered at random, n is the number of positions (of each colour and phase)."""
    drawn = random.Random(1)
    pool = [*VALUES.table, "a1a2", "g1g3", "h2h3", "h2h3", "h2h3", "h2h3"]
    for _ in range(50):
        answers = [
            line(" ".join(drawn.choices(pool, k=5)), "0.1 0.2 -0.3 1.0 -4.0", drawn.choice(pool))
            if drawn.random() < 0.7
            else None
            for _ in range(6)
        ]
        found = greedy_figures([Judged(values=VALUES, answer=answer) for answer in answers])
        counts = {figure.n for figure in found if not figure.name.endswith(("/black", "/white"))}
        assert counts == {6}


def test_the_floor_is_the_random_mover() -> None:
    """The expected best share and regret of random legal moves, exactly: a mean over moves."""
    found = by_name(greedy_figures([Judged(values=VALUES, answer=None)]))
    regrets = [VALUES.best - wp for wp in VALUES.table.values()]
    assert found["policy/regret_floor"].value == pytest.approx(sum(regrets) / len(regrets))
    share = sum(regret <= 0.005 for regret in regrets) / len(regrets)
    assert found["policy/best_floor"].value == pytest.approx(share)


def test_ties_within_the_band_are_best() -> None:
    """A move within .005 of the best is best; only the first in the engine's order is exact."""
    values = ActionValues(fen=FEN, moves=[("d1d7", "cp", 600), ("g2g3", "cp", 598)])
    judged = [Judged(values=values, answer=line("g2g3", "5.98", best)) for best in ("g2g3", "d1d7")]
    found = by_name(greedy_figures(judged))
    assert found["policy/best"].value == 1.0
    assert found["policy/best_exact"].value == 0.5


def test_colours_are_alike() -> None:
    """The position with its colours exchanged gives the same figures, under the other colour."""
    answer = line("d1d8 d1d7", "#1 6.00", "d1d7")
    mirrored = ActionValues(
        fen=flip(FEN), moves=[(flip_move(u), kind, value) for u, kind, value in VALUES.moves]
    )
    turned = line(flip_move("d1d8") + " " + flip_move("d1d7"), "#1 6.00", flip_move("d1d7"))
    white = by_name(greedy_figures([Judged(values=VALUES, answer=answer)]))
    black = by_name(greedy_figures([Judged(values=mirrored, answer=turned)]))
    for name, figure in white.items():
        head, _, kind = name.rpartition("/")
        other = black[f"{head}/{ {'white': 'black', 'black': 'white'}.get(kind, kind) }"]
        assert figure.value == pytest.approx(other.value, nan_ok=True)
        assert figure.n == other.n
    assert white["policy/best/white"].n == black["policy/best/black"].n == 1
    assert white["policy/best/black"].n == black["policy/best/white"].n == 0


def delivered() -> list[ActionValues]:
    path = shared_data("chess/policy_action_values.jsonl")
    rows = [json.loads(row) for row in path.read_text().splitlines()]
    return [ActionValues(fen=row["fen"], moves=row["moves"]) for row in rows]


def measured(policy: ScriptedPolicy, tables: list[ActionValues]) -> dict[str, Metric]:
    lines = asyncio.run(Player(policy).lines([values.fen for values in tables]))
    judged = [
        Judged(values=values, answer=answer) for values, answer in zip(tables, lines, strict=True)
    ]
    return by_name(greedy_figures(judged) + sampled_figures(judged))


def fen_of(prompt: str) -> str:
    return prompt.removeprefix("P: ").removesuffix(" M:")


def test_a_perfect_policy_is_perfect() -> None:
    """Who says the table gets 100 % and regret 0 on all 700 delivered positions."""
    tables = delivered()[::4]
    by_fen = {values.fen: values for values in tables}
    found = measured(ScriptedPolicy(lambda p, _: policy_text_of(by_fen[fen_of(p)])), tables)
    for name in ("format", "legal", "best", "best_exact", "top_k", "sampled/legal"):
        assert found[f"policy/{name}"].value == 1.0, name
    for name in ("regret", "acpl", "wrong_signs"):
        assert found[f"policy/{name}"].value == 0.0, name
    assert found["policy/eval_error"].value == pytest.approx(0.0, abs=1e-12)
    assert found["policy/kendall_tau"].value == pytest.approx(1.0)
    assert found["policy/best"].n == len(tables)


def test_a_random_mover_has_the_known_floors() -> None:
    """
    Legal 100 %, regret .277, exact best move 4.0 %, and 6.4 % within the band of .005.

    The expectations over the delivered positions with six legal moves or more.
    """
    tables = [values for values in delivered() if len(values.moves) >= 6]

    def script(prompt: str, _seed: int) -> str:
        board = chess.Board(fen_of(prompt))
        drawn = random.Random(f"floor {board.fen()}")
        moves = sorted(move.uci() for move in board.legal_moves)
        shown = drawn.sample(moves, min(5, len(moves)))
        return policy_text(shown, ["0.00"] * len(shown), drawn.choice(moves))

    found = measured(ScriptedPolicy(script), tables)
    assert found["policy/legal"].value == 1.0
    for name, floor in (("regret", 0.277), ("best_exact", 0.040), ("best", 0.064)):
        figure = found[f"policy/{name}"]
        assert figure.low <= floor <= figure.high, name
        if name != "best_exact":
            assert found[f"policy/{name}_floor"].value == pytest.approx(floor, abs=0.0006), name
    assert found["policy/wrong_signs"].value == 1.0, "0.00 has no sign"
    assert found["policy/kendall_tau"].value == 0.0, "and orders nothing"
