"""Reward of an answer to a puzzle or a test suite: the points of the chosen move."""

from __future__ import annotations

import math

from rlvr import Reward
from rlvr_chess.questions.grammar import PolicyAnswer
from rlvr_chess.questions.records import Solution
from rlvr_chess.questions.transition import legal_moves, mating_moves

WEIGHTS = {"format": 0.05, "points": 0.95}
"""Share of each component; they sum to 1."""


def solution_reward(record: Solution, answer: PolicyAnswer) -> Reward:
    """
    Reward (0..1) of a well-formed line: the format's share, and the points of its choice.

    `score01` is 1 where the choice has full points.
    """
    best = answer.best
    is_legal = best in legal_moves(record.fen)
    earned = points(record, best) if is_legal else 0.0
    components = {"format": WEIGHTS["format"], "points": WEIGHTS["points"] * earned}
    why = "" if earned == 1.0 else f"{best} has {earned:g} points"
    return Reward(
        value=math.fsum(components.values()),
        score01=float(earned == 1.0),
        components=components,
        evidence={
            "why": why if is_legal else f"{best} is not legal",
            "move": best,
            "points": earned,
            "solutions": sorted(solutions(record)),
        },
    )


def points(record: Solution, uci: str) -> float:
    """Points (0..1) of a legal move."""
    if uci in record.avoid:
        return 0.0
    if record.any_mate and uci in mating_moves(record.fen):
        return 1.0
    if record.avoid and not record.points:
        return 1.0
    return record.points.get(uci, 0.0)


def solutions(record: Solution) -> frozenset[str]:
    """The legal moves with full points."""
    return frozenset(move for move in legal_moves(record.fen) if points(record, move) == 1.0)
