"""The world-model rollout: the policy plays the board of a real game, on its own answers only.

It is told a move of the game and its own last FEN, and its answer is the next FEN. A state with one
error in it stays wrong, so a game ends at the first answer that is not exact. Where a data set
holds no games the engine plays them, the same each time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from attrs import frozen

from rlvr import Metric
from rlvr_chess.asking import Player, answer_text
from rlvr_chess.engine.pool import EnginePool
from rlvr_chess.evaluation.statistics import mean, rate
from rlvr_chess.fen import board_after
from rlvr_chess.questions.grammar import environment_prompt, parse_environment
from rlvr_chess.questions.transition import transition
from rlvr_chess.selfplay.arena import Pairing, play
from rlvr_chess.selfplay.game import Game, Rules
from rlvr_chess.selfplay.movers import EngineMover, MixMover
from rlvr_chess.selfplay.openings import book, choose_openings

HORIZONS = (1, 2, 4, 8, 16, 32)
"""Plies at which survival is reported."""
PLIES = max(HORIZONS)
GAMES = 100
SEED = 7
"""Not of the evaluation: all models are asked about the same games."""
NOTE = "games of Stockfish (100 nodes, a random move in four) from our book: the data set has none"


@frozen(kw_only=True)
class Walk:
    """Moves of a game from a position in it; at least `PLIES`."""

    fen: str
    moves: tuple[str, ...]


def walk_of(fen: str, moves: Sequence[str], key: str) -> Walk | None:
    """`PLIES` plies of a game, the first chosen by its key; None where the game is shorter."""
    if len(moves) < PLIES:
        return None
    first = random.Random(f"rollout/{key}").randrange(len(moves) - PLIES + 1)
    return Walk(
        fen=board_after(fen, moves[:first]).fen(), moves=tuple(moves[first : first + PLIES])
    )


async def exact_plies(player: Player, walks: Sequence[Walk], *, history: int = 0) -> list[int]:
    """The number of plies of each walk (0..`PLIES`) foretold exactly before the first error."""
    fens, exact = [walk.fen for walk in walks], [0] * len(walks)
    for ply in range(PLIES):
        going = [place for place, count in enumerate(exact) if count == ply]
        if not going:
            break
        prompts = []
        for place in going:
            moves = walks[place].moves
            past = moves[max(0, ply + 1 - history) : ply + 1] if history else ()
            prompts.append(environment_prompt(fens[place], moves[ply], past, player.profile))
        for place, answer in zip(going, await player.texts(prompts), strict=True):
            text, truth = answer_text(answer), transition(fens[place], walks[place].moves[ply])
            if text is not None and parse_environment(text, player.profile) == truth:
                fens[place], exact[place] = truth.fen, ply + 1
    return exact


async def engine_games(pool: EnginePool, plies: int, count: int = GAMES) -> list[Game]:
    """Games that last `plies` half-moves beyond their opening, or end before."""
    mover = MixMover(EngineMover(pool, nodes=100), 0.75)
    pairings = [
        Pairing(white=mover, black=mover, opening=opening)
        for opening in choose_openings(book(), count, seed=SEED)
    ]
    return await play(pairings, rules=Rules(max_plies=plies), seed=SEED)


def figures(exact: Sequence[int], note: str = "") -> list[Metric]:
    """Share of games still exact after n plies, and how many plies are exact on average."""
    found = [rate(f"rollout/exact_at_{n}", [plies >= n for plies in exact], note) for n in HORIZONS]
    about = "; ".join(filter(None, [f"of {PLIES} plies", note]))
    return [*found, mean("rollout/plies", [float(plies) for plies in exact], about)]
