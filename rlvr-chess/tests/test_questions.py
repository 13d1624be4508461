from __future__ import annotations

import chess
import pytest
from engine_fixture import positions

from rlvr_chess.questions.categories import category_of, phase_of, ply_bucket, rating_bucket
from rlvr_chess.questions.environment import step_of, steps_of
from rlvr_chess.questions.transition import legal_moves

START = chess.STARTING_FEN
CASTLE = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"


@pytest.mark.parametrize(
    ("fen", "uci", "category"),
    [
        (START, "g1f3", "quiet"),
        (START, "e2e4", "double_push_no_ep"),
        ("4k3/8/8/8/3p4/8/4P3/4K3 w - - 0 1", "e2e4", "double_push_ep_square"),
        ("4k3/8/8/8/3pP3/8/8/4K3 b - e3 0 1", "d4e3", "ep_capture"),
        (CASTLE, "e1g1", "castle_k"),
        (CASTLE, "e1c1", "castle_q"),
        (CASTLE, "a1a2", "loses_castling"),
        (CASTLE, "e1d1", "loses_castling"),
        (CASTLE, "a1a8", "check"),
        ("4k2r/8/8/8/8/8/6P1/4K2B w k - 0 1", "g2g3", "quiet"),
        ("4k2r/8/8/3B4/8/8/8/4K2R w Kk - 0 1", "h1h8", "check"),
        ("4k2r/4p3/8/3B4/8/8/8/4K3 w k - 0 1", "d5h1", "quiet"),
        ("r3k3/4p3/8/3B4/8/8/8/4K3 w q - 0 1", "d5a8", "loses_castling_by_capture"),
        ("8/P3k3/8/8/8/8/8/4K3 w - - 0 1", "a7a8q", "promo_q"),
        ("8/P3k3/8/8/8/8/P7/4K3 w - - 0 1", "a7a8n", "promo_n"),
        ("1n6/P3k3/8/8/8/8/8/4K3 w - - 0 1", "a7b8r", "promo_capture"),
        ("6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1", "a1a8", "checkmate"),
        ("7k/5K2/8/6Q1/8/8/8/8 w - - 0 1", "g5g6", "stalemate"),
        ("4k3/8/8/8/8/8/3p4/4K3 w - - 0 1", "e1d2", "insufficient_material"),
        ("4k3/8/8/8/8/8/8/R3K3 w - - 149 90", "a1a2", "seventyfive_move_draw"),
        ("4k3/8/8/8/8/8/8/R3K3 w - - 99 90", "a1a2", "fifty_move_not_terminal"),
        (START, "e4e5", "illegal_empty"),
        (START, "e7e5", "illegal_opponent"),
        (START, "a1a5", "illegal_geometry"),
        (START, "e2e4q", "illegal_promo_extra"),
        ("8/P3k3/8/8/8/8/8/4K3 w - - 0 1", "a7a8", "illegal_promo_missing"),
        ("4k3/4r3/8/8/8/8/4R3/4K3 w - - 0 1", "e2a2", "illegal_into_check"),
        (START, "0000", "illegal_null"),
        (START, "e2-e4", "illegal_malformed"),
    ],
)
def test_kinds_of_moves(fen: str, uci: str, category: str) -> None:
    """One hand-made move of each kind of the golden file."""
    assert category_of(fen, uci) == category


def test_questions_about_positions() -> None:
    """240 positions: one illegal move in twelve, every other one legal, kinds as they are named."""
    fens = positions(240)
    steps = list(steps_of(fens))
    assert [step.fen for step in steps] == fens
    illegal = [step for step in steps if step.uci not in legal_moves(step.fen)]
    assert len(illegal) == 20
    assert all(step.category.startswith("illegal_") for step in illegal)
    assert len({step.category for step in illegal}) >= 5
    assert all(step.category == category_of(step.fen, step.uci) for step in steps)
    assert len({step.category for step in steps} - {step.category for step in illegal}) >= 8


def test_a_question_is_the_positions_own() -> None:
    """The same position gets the same move in any company, and the illegal ones are few."""
    fens = positions(24, seed=2)
    alone = {fen: next(iter(steps_of([fen]))) for fen in fens}
    step_of.cache_clear()
    together = list(steps_of(fens))
    assert sum(step != alone[step.fen] for step in together) == 2
    step_of.cache_clear()
    assert [s.uci for s in steps_of(fens)] == [s.uci for s in together]


@pytest.mark.parametrize(
    ("fen", "phase"),
    [
        (START, "opening"),
        ("4k3/pppp4/8/8/8/8/PPPP4/R3K3 w - - 0 30", "endgame"),
        ("r1bq1rk1/pp1n1pp1/8/8/8/8/PP3PPP/R4RK1 w - - 0 20", "middlegame"),
        ("3rk3/pppqnppp/2nbb3/8/8/2NBBN2/PPPQ1PPP/R3K2R w KQ - 0 12", "middlegame"),
    ],
)
def test_phases(fen: str, phase: str) -> None:
    """By the men: 14 at the start; one rook; nine; many, with Black's back rank nearly empty."""
    assert phase_of(fen) == phase


def test_buckets() -> None:
    """Half-moves by twenties from 1, ratings by 400."""
    assert ply_bucket(START) == "1-20"
    assert ply_bucket(START.replace("w", "b").replace("0 1", "0 10")) == "1-20"
    assert ply_bucket(START.replace("0 1", "0 11")) == "21-40"
    assert [rating_bucket(r) for r in (399, 400, 2799)] == ["0-399", "400-799", "2400-2799"]
