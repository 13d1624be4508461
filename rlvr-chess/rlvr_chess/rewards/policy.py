"""Reward of a policy line: first the chosen move, then what it says about the others.

Exact agreement with the engine's best move is a noisy label at any cheap budget; what a move gives
away in win probability is stable, so that is what counts. Moves within `BAND` of the best are as
good as it. Weights and rules: docs/chess/rewards.md.
"""

from __future__ import annotations

import math

from rlvr import Reward
from rlvr_chess.questions.grammar import PolicyAnswer, eval_win_probability
from rlvr_chess.values import BAND, ActionValues

WEIGHTS = {"format": 0.05, "best": 0.60, "candidates": 0.15, "evals": 0.15, "consistency": 0.05}
"""Share of each component; they sum to 1."""
DECAY = 0.05
"""Regret beyond the band at which a move earns 1/e of the best one's reward."""
TOLERANCE = 0.10
"""Error of an evaluation, in win probability, at which it earns nothing."""


def policy_reward(values: ActionValues, answer: PolicyAnswer) -> Reward:
    """
    Reward (0..1) of a well-formed line; its components are weighted and sum to it.

    An illegal choice earns the format's share and nothing else. `score01` is 1 where the choice is
    as good as the best move.
    """
    table, moves, best = values.table, answer.moves, answer.best
    if best not in table:
        components = {**dict.fromkeys(WEIGHTS, 0.0), "format": WEIGHTS["format"]}
        return _reward(values, components, f"{best} is not legal", "", None)
    regret = values.regret(best)
    written = [eval_win_probability(text) for text in answer.evals]
    parts = {
        "format": 1.0,
        "best": 1.0 if regret <= BAND else math.exp(-(regret - BAND) / DECAY),
        "candidates": _candidates(values, moves),
        "evals": _evals(values, moves, written),
        "consistency": float(best in moves and written[moves.index(best)] == max(written)),
    }
    components = {name: WEIGHTS[name] * part for name, part in parts.items()}
    why = "" if regret <= BAND else f"{best} gives away {regret:.3f} of win probability"
    return _reward(values, components, why, best, regret)


def _candidates(values: ActionValues, moves: tuple[str, ...]) -> float:
    """Share of the k places that hold one of the k best moves; illegal ones count against it."""
    table, count = values.table, len(moves)
    last = values.least(count)
    good = sum(table.get(move, -1.0) >= last for move in set(moves))
    illegal = sum(move not in table for move in moves)
    return max(0, good - illegal) / count


def _evals(values: ActionValues, moves: tuple[str, ...], written: list[float]) -> float:
    """Mean accuracy over the k places; a repeated or illegal move has none."""
    table = values.table
    first = dict(zip(reversed(moves), reversed(written), strict=True))  # the first one counts
    errors = [abs(value - table[move]) for move, value in first.items() if move in table]
    return math.fsum(max(0.0, 1.0 - error / TOLERANCE) for error in errors) / len(moves)


def _reward(
    values: ActionValues, components: dict[str, float], why: str, best: str, regret: float | None
) -> Reward:
    strongest = max(values.table, key=values.table.__getitem__)
    return Reward(
        value=math.fsum(components.values()),
        score01=float(not why),
        components=components,
        evidence={
            "why": why,
            "move": best,
            "score": values.score_text(best) if best else "",
            "regret": regret,
            "best_move": strongest,
            "best_score": values.score_text(strongest),
            "engine": values.engine,
        },
    )
