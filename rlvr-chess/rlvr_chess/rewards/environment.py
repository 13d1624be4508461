"""Reward of a predicted state: nothing for what the prompt already says.

The predecessor paid 0.9 for copying the input, because most of a board stays as it is. Here only
the squares that the move changes count, and the other fields only where the board is exact.
Weights and rules: docs/chess/rewards.md.
"""

from __future__ import annotations

import math
from functools import lru_cache

from rlvr import Reward
from rlvr_chess.fen import board_squares
from rlvr_chess.questions.grammar import environment_text
from rlvr_chess.questions.transition import State

WEIGHTS = {
    "format": 0.05,
    "placement": 0.20,
    "castling": 0.05,
    "en_passant": 0.05,
    "halfmove": 0.05,
    "fullmove": 0.05,
    "outcome": 0.05,
    "exact": 0.50,
}
"""Share of each component; they sum to 1. The side to move counts in `exact` alone."""
FIELDS = ("placement", "side", "castling", "en_passant", "halfmove", "fullmove")
"""The six fields of a FEN, in order."""


def environment_reward(
    fen: str, truth: State, answer: State, *, exact_only: bool = False
) -> Reward:
    """
    Reward (0..1) of a well-formed state; its components are weighted and sum to it.

    `fen` is the position before the move. With `exact_only` (`chess.exact`) it is 1 for the whole
    answer right, else 0, and the one component. `score01` is 1 where the whole answer is right.
    """
    wrong = wrong_parts(truth, answer)
    is_exact = not wrong
    if exact_only:
        components = {"exact": float(is_exact)}
    else:
        placement = 1.0 if "placement" not in wrong else _placement(fen, truth, answer)
        has_board = placement == 1.0
        parts = {name: float(has_board and name not in wrong) for name in WEIGHTS}
        parts |= {"format": 1.0, "placement": placement, "exact": float(is_exact)}
        components = {name: WEIGHTS[name] * part for name, part in parts.items()}
    return Reward(
        value=math.fsum(components.values()),
        score01=float(is_exact),
        components=components,
        evidence={
            "why": f"wrong: {', '.join(wrong)}" if wrong else "",
            "wrong": list(wrong),
            "truth": environment_text(truth),
            "legal": truth.is_legal,
        },
    )


def wrong_parts(truth: State, answer: State) -> tuple[str, ...]:
    """Which of the six FEN fields and of "outcome" (reward and both flags) are not right."""
    pairs = zip(FIELDS, truth.fen.split(" "), answer.fen.split(" "), strict=True)
    wrong = [name for name, right, said in pairs if right != said]
    if answer.outcome != truth.outcome:
        wrong.append("outcome")
    return tuple(wrong)


def _placement(fen: str, truth: State, answer: State) -> float:
    """1 minus wrong squares / squares that the move changes, at least 0."""
    right = _squares(truth.fen)
    changed = _differences(_squares(fen), right)
    wrong = _differences(_squares(answer.fen), right)
    return max(0.0, 1.0 - wrong / changed) if changed else float(wrong == 0)


@lru_cache(maxsize=4096)
def _squares(fen: str) -> str:
    return board_squares(fen.partition(" ")[0])


def _differences(one: str, other: str) -> int:
    return sum(map(str.__ne__, one, other))
