"""Legality in self-play: how many half-moves until the first one that is not legal."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr import Figure
from rlvr_chess.asking import Player
from rlvr_chess.evaluation.statistics import ratio, survival_figure
from rlvr_chess.selfplay.arena import Pairing, play
from rlvr_chess.selfplay.game import Game
from rlvr_chess.selfplay.movers import PolicyMover

GAMES = 100
"""At most."""
TEMPERATURE = 0.6


async def legality_games(player: Player, games: int, *, seed: int = 0) -> list[Game]:
    """Games of the policy against itself from the initial position, to an end or an error."""
    mover = PolicyMover(player.policy, player.params(TEMPERATURE), player.profile)
    return await play([Pairing(white=mover, black=mover)] * games, seed=seed)


def figures(games: Sequence[Game]) -> list[Figure]:
    """
    The half-move of the first illegal answer (median by Kaplan-Meier), and the illegal share.

    A game that ended otherwise says that it lasted at least so long: it is censored.
    """
    happened = [game.illegal_at is not None for game in games]
    lasted = [g.legal_plies + bad for g, bad in zip(games, happened, strict=True)]
    note = f"half-moves; temperature {TEMPERATURE}; {sum(happened)} of {len(games)} games had one"
    share = [(float(bad), float(plies)) for bad, plies in zip(happened, lasted, strict=True)]
    return [
        survival_figure("selfplay/first_illegal", lasted, happened, note),
        ratio("selfplay/illegal_share", share, "of half-moves up to the first illegal one"),
    ]
