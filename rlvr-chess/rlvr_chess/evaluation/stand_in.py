"""Games for the rollout where a data set holds none: the engine plays them, the same each time."""

from __future__ import annotations

from rlvr_chess.engine.pool import EnginePool
from rlvr_chess.selfplay.adjudication import Rules
from rlvr_chess.selfplay.arena import Pairing, play
from rlvr_chess.selfplay.game import Game
from rlvr_chess.selfplay.movers import EngineMover, MixMover
from rlvr_chess.selfplay.openings import book, choose_openings

GAMES = 100
SEED = 7
"""Not of the evaluation: all models are asked about the same games."""
NOTE = "games of Stockfish (100 nodes, a random move in four) from our book: the data set has none"


async def engine_games(pool: EnginePool, plies: int, count: int = GAMES) -> list[Game]:
    """Games that last `plies` half-moves beyond their opening, or end before."""
    mover = MixMover(EngineMover(pool, nodes=100), 0.75)
    pairings = [
        Pairing(white=mover, black=mover, opening=opening)
        for opening in choose_openings(book(), count, seed=SEED)
    ]
    return await play(pairings, rules=Rules(max_plies=plies), seed=SEED)
