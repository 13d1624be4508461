"""What a list of games amounts to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_chess.fen import four_fields
from rlvr_chess.selfplay.game import Game


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
        shown = (
            ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else value
        )
        lines.append(f"{name.replace('_', ' '):20} {shown}")
    return "\n".join(lines)
