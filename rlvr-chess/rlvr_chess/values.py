"""The value of every legal move of a position, from the side to move's view, and regret.

Win probability is Lichess's sigmoid of centipawns (lichess.org/page/accuracy). Its use as a
reward of chess is that of "searchless chess" (arXiv:2402.04494): differences near equality count,
differences between two won positions do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TypeAlias

from attrs import field, frozen

K = 0.00368208
"""Slope of the sigmoid, per centipawn."""
CLAMP = 2000
"""Centipawns beyond which nothing changes; a mate counts as this much."""
BAND = 0.005
"""Moves this close to the best, in win probability, are as good as it."""
MOST = 5
"""Candidates that an answer names, where so many moves are legal."""

Score: TypeAlias = tuple[str, str, int]
"""A move (UCI), "cp" or "mate", and its value from the side to move's view."""


def win_probability(kind: str, value: int) -> float:
    """
    Win probability (0..1) of a score of the side to move.

    Args:
        kind: "cp" (centipawns) or "mate" (moves to mate; negative: against the mover).
        value: The score; a mate is never 0.
    """
    return 1.0 / (1.0 + math.exp(-K * centipawns(kind, value)))


def centipawns(kind: str, value: int) -> int:
    """A score of the side to move in centipawns, a mate as `CLAMP`; never beyond that."""
    if kind == "mate":
        return CLAMP if value > 0 else -CLAMP
    return max(-CLAMP, min(CLAMP, value))


def strength(move: Score) -> tuple[int, int]:
    """Larger is better: mates, the nearest first, centipawns, being mated, the farthest first."""
    _, kind, value = move
    if kind == "cp":
        return 0, value
    return (1, -value) if value > 0 else (-1, -value)


def _moves(values: Iterable[Iterable[object]]) -> tuple[Score, ...]:
    return tuple((str(uci), str(kind), int(str(value))) for uci, kind, value in values)


@frozen(kw_only=True, slots=False)
class ActionValues:
    """
    Every legal move of a position with its score, best first (the engine's order).

    Attributes:
        fen: Six fields.
        moves: (UCI, "cp" or "mate", value) each, side to move's view.
        engine: Identity of the engine and its settings that scored it (`engine.identity`), "" where
            a data set does not say.
    """

    fen: str
    moves: tuple[Score, ...] = field(converter=_moves)
    engine: str = ""

    @cached_property
    def table(self) -> Mapping[str, float]:
        """T: win probability of each legal move, by UCI, in the engine's order."""
        return {uci: win_probability(kind, value) for uci, kind, value in self.moves}

    @cached_property
    def best(self) -> float:
        """The largest win probability."""
        return max(self.table.values())

    @property
    def count(self) -> int:
        """k: candidates that an answer names, at most five."""
        return min(MOST, len(self.moves))

    @cached_property
    def ranked(self) -> tuple[str, ...]:
        """All moves, the best first; those worth the same in the engine's order."""
        return tuple(sorted(self.table, key=lambda uci: -self.table[uci]))

    def least(self, count: int) -> float:
        """Win probability from which on a move is one of the best `count`, or as good as them."""
        return sorted(self.table.values(), reverse=True)[count - 1] - BAND

    def regret(self, uci: str) -> float:
        """Win probability that the move gives away (0..1); KeyError where it is not legal."""
        return self.best - self.table[uci]

    def score(self, uci: str) -> tuple[str, int]:
        """Kind ("cp" or "mate") and value of a move's score."""
        return next((kind, value) for move, kind, value in self.moves if move == uci)

    def score_text(self, uci: str) -> str:
        """The score as an answer writes it: pawns with two decimals, or `#n`."""
        kind, value = self.score(uci)
        if kind == "mate":
            return f"-#{-value}" if value < 0 else f"#{value}"
        sign = "-" if value < 0 else ""
        return f"{sign}{abs(value) // 100}.{abs(value) % 100:02d}"


@frozen(kw_only=True)
class Entry:
    """A scored position: its values, the iteration they are from, and its split or ""."""

    values: ActionValues
    depth: int = 0
    split: str = ""
