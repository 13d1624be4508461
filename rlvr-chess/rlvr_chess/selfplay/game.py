"""
A game, what many amount to, and when one is over: rules, claims, a cap, resignation, value.

Draws that a player could claim (threefold repetition, fifty moves) are claimed, because a policy
cannot. Values come from a table or an engine, where one is at hand (`Judge`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import chess
from attrs import field, frozen
from attrs.validators import ge, in_, le, lt

from rlvr import as_tuple
from rlvr_chess.fen import four_fields
from rlvr_chess.values import CLAMP, ActionValues, win_probability


@frozen(kw_only=True)
class Game:
    """
    A finished game.

    Attributes:
        moves: UCI, the opening's included.
        start_fen: Six fields of the position before them.
        result: "1-0", "0-1" or "1/2-1/2".
        reason: Why it ended: "checkmate", "illegal move", "ply cap", ...
        opening: Name of the opening.
        eco: Its code, "" where none.
        book: Plies that the opening gave; the movers played the others.
        illegal_at: Ply (0-based, place in `moves`) of the first answer that was no legal move,
            whatever the rule did about it; None where all were legal.
        illegal: Such answers of White and of Black; asked again, each counts.
        random: Plies that were drawn at random: injected blunders and the rule `random`.
        white: Who played White.
        black: Who played Black.
    """

    moves: tuple[str, ...] = field(converter=as_tuple)
    start_fen: str = chess.STARTING_FEN
    result: str
    reason: str
    opening: str = ""
    eco: str = ""
    book: int = 0
    illegal_at: int | None = None
    illegal: tuple[int, ...] = field(default=(0, 0), converter=as_tuple)
    random: tuple[int, ...] = field(default=(), converter=as_tuple)
    white: str = ""
    black: str = ""

    @property
    def plies(self) -> int:
        """Half-moves, the opening's included."""
        return len(self.moves)

    @property
    def legal_plies(self) -> int:
        """Half-moves of the movers before the first illegal answer; all of them without one."""
        return (self.plies if self.illegal_at is None else self.illegal_at) - self.book

    def score(self, colour: chess.Color) -> float:
        """Points of a side: 1, 0.5 or 0."""
        white = {"1-0": 1.0, "0-1": 0.0}.get(self.result, 0.5)
        return white if colour == chess.WHITE else 1.0 - white

    def positions(self) -> Iterator[tuple[int, str, str]]:
        """Ply, FEN before it and the move, in order."""
        board = chess.Board(self.start_fen)
        for ply, uci in enumerate(self.moves):
            yield ply, board.fen(), uci
            board.push_uci(uci)


def summary(games: Sequence[Game]) -> dict[str, Any]:
    """
    Counts and means (JSON values).

    `illegal_rate` is illegal answers over all answers that were asked for, `legal_plies` the mean
    of half-moves before the first of them, where a game without one counts whole;
    `distinct_positions` is over all positions after the openings.
    """
    illegal = sum(sum(game.illegal) for game in games)
    played = sum(game.plies - game.book for game in games)
    drawn = sum(len(game.random) for game in games)
    met = [
        four_fields(fen)
        for game in games
        for ply, fen, _ in game.positions()
        if ply > game.book  # the position after the opening is given, not found
    ]
    return {
        "games": len(games),
        "results": dict(sorted(Counter(game.result for game in games).items())),
        "reasons": dict(Counter(game.reason for game in games).most_common()),
        "plies": played,
        "illegal_answers": illegal,
        "illegal_rate": round(illegal / max(1, played - drawn + illegal), 4),
        "legal_plies": round(sum(game.legal_plies for game in games) / max(1, len(games)), 2),
        "openings": len({game.opening for game in games}),
        "distinct_positions": round(len(set(met)) / max(1, len(met)), 4),
    }


def as_text(told: Mapping[str, Any]) -> str:
    """The summary for people, one number a line."""
    lines = []
    for name, value in told.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k}: {v}" for k, v in value.items())
        lines.append(f"{name.replace('_', ' '):20} {value}")
    return "\n".join(lines)


Judge = Callable[[str], Awaitable[ActionValues | None]]
"""Value of every move of a position (FEN), None if it is unknown."""

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
        resign_below: A mover that says so for `resign_turns` turns of its own resigns (win
            probability by its own evaluation of its move); 0: never.
        resign_turns: See above.
        value_limit: Centipawns for either side from which the game is awarded, mates included;
            0: never. Needs a judge.
        value_plies: Judged positions in a row, the same side ahead; unknown ones do not count.
    """

    max_plies: int = field(default=300, validator=ge(1))
    illegal: str = field(default="loss", validator=in_(ILLEGAL_RULES))
    retries: int = field(default=3, validator=ge(1))
    resign_below: float = field(default=0.0, validator=[ge(0.0), le(0.5)])
    resign_turns: int = field(default=3, validator=ge(1))
    value_limit: int = field(default=0, validator=[ge(0), lt(CLAMP)])
    value_plies: int = field(default=3, validator=ge(1))


def won_by(colour: chess.Color, reason: str) -> Ending:
    """A side wins."""
    return Ending(result="1-0" if colour == chess.WHITE else "0-1", reason=reason)


def ended_by_rules(board: chess.Board, played: int, rules: Rules) -> Ending | None:
    """
    Whether the position ends the game, `played` half-moves after the opening.

    The board has its history, which repetitions need.
    """
    if (outcome := board.outcome()) is not None:
        reason = outcome.termination.name.lower().replace("_", " ").replace("seventyfive", "75")
        return Ending(result=outcome.result(), reason=reason)
    if board.is_repetition(3):
        return Ending(result=DRAW, reason="threefold repetition")
    if board.is_fifty_moves():
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
    last, limit = own[-rules.resign_turns :], rules.resign_below
    is_long = limit > 0 and len(last) == rules.resign_turns
    gives_up = is_long and all(value is not None and value < limit for value in last)
    return won_by(not colour, "resignation") if gives_up else None


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
