"""The value of every legal move of a position, from the side to move's view, and regret.

Win probability is Lichess's sigmoid of centipawns (lichess.org/page/accuracy). Its use as a
reward of chess is that of "searchless chess" (arXiv:2402.04494): differences near equality count,
differences between two won positions do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property

from attrs import field, frozen

K = 0.00368208
"""Slope of the sigmoid, per centipawn."""
CLAMP = 2000
"""Centipawns beyond which nothing changes; a mate counts as this much."""
BAND = 0.005
"""Moves this close to the best, in win probability, are as good as it."""


def win_probability(kind: str, value: int) -> float:
    """
    Win probability (0..1) of a score of the side to move.

    Args:
        kind: "cp" (centipawns) or "mate" (moves to mate; negative: against the mover).
        value: The score; a mate is never 0.
    """
    centipawns = value if kind == "cp" else CLAMP if value > 0 else -CLAMP
    return 1.0 / (1.0 + math.exp(-K * max(-CLAMP, min(CLAMP, centipawns))))


def _moves(values: Iterable[Iterable[object]]) -> tuple[tuple[str, str, int], ...]:
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
    moves: tuple[tuple[str, str, int], ...] = field(converter=_moves)
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
        return min(5, len(self.moves))

    def regret(self, uci: str) -> float:
        """Win probability that the move gives away (0..1); KeyError where it is not legal."""
        return self.best - self.table[uci]

    def score_text(self, uci: str) -> str:
        """The score as an answer writes it: pawns with two decimals, or `#n`."""
        kind, value = next((kind, value) for move, kind, value in self.moves if move == uci)
        if kind == "mate":
            return f"-#{-value}" if value < 0 else f"#{value}"
        sign = "-" if value < 0 else ""
        return f"{sign}{abs(value) // 100}.{abs(value) % 100:02d}"
