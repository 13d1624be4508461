"""
When a game is over: by the rules of chess, by claims, by a cap, by resignation, by its value.

Draws that a player could claim (threefold repetition, fifty moves) are claimed, because a policy
cannot. Values come from a table or an engine, where one is at hand (`Judge`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import chess
from attrs import field, frozen
from attrs.validators import ge, in_, le, lt

from rlvr_chess.values import CLAMP, ActionValues, win_probability

Judge = Callable[[str], Awaitable[ActionValues | None]]
"""Value of every move of a position (FEN), None where nobody knows it."""

DRAW = "1/2-1/2"
ILLEGAL_RULES = ("loss", "resample", "random")


@frozen(kw_only=True)
class Ending:
    """How a game ended."""

    result: str
    reason: str


@frozen(kw_only=True)
class Rules:
    """
    When a game ends before mate, and what an illegal answer costs.

    Attributes:
        max_plies: Half-moves after the opening, then it is a draw ("ply cap").
        illegal: "loss"; "resample": the mover is asked again and loses after that; "random": a
            random legal move is played in its place.
        retries: How often it is asked again.
        claims: Draws by threefold repetition and fifty moves are claimed.
        resign_below: A mover that says so for `resign_turns` turns of its own resigns (win
            probability by its own evaluation of its move); 0: nobody does.
        resign_turns: See above.
        value_limit: Centipawns for either side from which the game is awarded, mates included;
            0: never. Needs a judge.
        value_plies: Judged positions in a row, the same side ahead; unknown ones do not count.
    """

    max_plies: int = field(default=300, validator=ge(1))
    illegal: str = field(default="loss", validator=in_(ILLEGAL_RULES))
    retries: int = field(default=3, validator=ge(1))
    claims: bool = True
    resign_below: float = field(default=0.0, validator=[ge(0.0), le(0.5)])
    resign_turns: int = field(default=3, validator=ge(1))
    value_limit: int = field(default=0, validator=[ge(0), lt(CLAMP)])
    value_plies: int = field(default=3, validator=ge(1))


def won_by(colour: chess.Color, reason: str) -> Ending:
    """A side wins."""
    return Ending(result="1-0" if colour == chess.WHITE else "0-1", reason=reason)


def ended_by_rules(board: chess.Board, played: int, rules: Rules) -> Ending | None:
    """
    Whether the position ends the game.

    Args:
        board: With its history, which repetitions need.
        played: Half-moves since the opening.
        rules: Claims and the cap.
    """
    if (outcome := board.outcome()) is not None:
        reason = outcome.termination.name.lower().replace("_", " ").replace("seventyfive", "75")
        return Ending(result=outcome.result(), reason=reason)
    if rules.claims and board.is_repetition(3):
        return Ending(result=DRAW, reason="threefold repetition")
    if rules.claims and board.is_fifty_moves():
        return Ending(result=DRAW, reason="fifty moves")
    if played >= rules.max_plies:
        return Ending(result=DRAW, reason="ply cap")
    return None


def ended_by_resignation(
    colour: chess.Color, own: Sequence[float | None], rules: Rules
) -> Ending | None:
    """
    Whether the side that just moved gives up, by what it said of its last moves.

    `own` are its win probabilities in order; None where it said nothing, which ends a series.
    """
    last = own[-rules.resign_turns :]
    if not rules.resign_below or len(last) < rules.resign_turns:
        return None
    if all(value is not None and value < rules.resign_below for value in last):
        return won_by(not colour, "resignation")
    return None


def ended_by_value(judged: Sequence[float], rules: Rules) -> Ending | None:
    """Whether the game is decided: White's win probabilities of the positions judged so far."""
    last = judged[-rules.value_plies :]
    if not rules.value_limit or len(last) < rules.value_plies:
        return None
    limit = win_probability("cp", rules.value_limit)
    if all(value >= limit for value in last):
        return won_by(chess.WHITE, "value")
    if all(value <= 1.0 - limit for value in last):
        return won_by(chess.BLACK, "value")
    return None


def for_white(values: ActionValues, turn: chess.Color) -> float:
    """White's win probability of a position, given the best move of the side to move."""
    return values.best if turn == chess.WHITE else 1.0 - values.best
