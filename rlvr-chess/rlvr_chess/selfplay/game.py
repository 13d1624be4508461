"""What a game was: moves, end, answers that are no legal move; and what many amount to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import chess
from attrs import field, frozen

from rlvr import as_tuple
from rlvr_chess.fen import four_fields


@frozen(kw_only=True)
class Game:
    """
    A finished game.

    Attributes:
        moves: UCI, the opening's included.
        start_fen: Six fields of the position before them.
        result: "1-0", "0-1" or "1/2-1/2".
        reason: Why it ended: "checkmate", "illegal move", "ply cap", ... (`adjudication`).
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
