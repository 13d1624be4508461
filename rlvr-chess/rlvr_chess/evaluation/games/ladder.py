"""
The low-end ladder: opponents far below `UCI_Elo`'s 1350, and the games against them.

"mix50" plays Stockfish at 100 nodes with probability 0.5, else any legal move. The ratings were
calibrated by 200 games a pair of neighbours (../../benchmarks/bench_chess_ladder.py plays it again)
and are relative to the random mover.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from rlvr import Metric, counted, seed_of
from rlvr_chess.asking import Player
from rlvr_chess.engine.pool import EnginePool
from rlvr_chess.evaluation.games.elo import MODEL, Pair, Rung, elo_figure, expected, fit
from rlvr_chess.evaluation.statistics import ratio, survival_figure
from rlvr_chess.selfplay.arena import Pairing, play
from rlvr_chess.selfplay.game import Game, Rules
from rlvr_chess.selfplay.movers import EngineMover, MixMover, Mover, PolicyMover, RandomMover
from rlvr_chess.selfplay.openings import Opening, choose_openings

RUNGS = tuple(
    Rung(name=name, rating=rating, low=low, high=high)
    for name, rating, low, high in (
        ("random", 0.0, 0.0, 0.0),
        ("mix10", 148.0, 120.0, 174.0),
        ("mix25", 365.0, 328.0, 407.0),
        ("mix50", 735.0, 695.0, 804.0),
        ("mix75", 1199.0, 1116.0, 1309.0),
        ("elo1350", 1539.0, 1369.0, 1688.0),
        ("nodes100", 1853.0, 1711.0, 2006.0),
        ("nodes1k", 2097.0, 1965.0, 2271.0),
    )
)
"""Weakest first."""
NEAREST = 2
"""Rungs that the model is measured against."""
RESAMPLE_SHARE = 0.5
"""Of the games, where an illegal answer is asked again: they are the long ones."""
PROBED = ("random", "mix25", "mix50", "nodes100")
PROBE_PAIRS = 4
"""Openings of the first, rough look, which chooses the rungs and counts for nothing else."""
RETRIES = 16
MODES = {"loss": Rules(), "resample": Rules(illegal="resample", retries=RETRIES)}
"""What an illegal answer costs: the game; or asking again, which shows the strength besides."""
NOTES = {
    "loss": "an illegal move loses",
    "resample": f"asked again up to {RETRIES} times after an illegal move",
}


@frozen(kw_only=True)
class Match:
    """Games of the model against rungs: two an opening, in order, so that pairs stand together."""

    games: tuple[Game, ...]
    pairs: tuple[Pair, ...]


def rung_movers(pool: EnginePool) -> dict[str, Mover]:
    """The mover of each rung, by the rung's name."""
    weak = EngineMover(pool, nodes=100)
    movers: list[Mover] = [
        RandomMover(),
        *(MixMover(weak, share / 100, name=f"mix{share}") for share in (10, 25, 50, 75)),
        EngineMover(pool, nodes=10_000, elo=1350, name="elo1350"),
        EngineMover(pool, nodes=100, name="nodes100"),
        EngineMover(pool, nodes=1_000, name="nodes1k"),
    ]
    return {mover.name: mover for mover in movers}


async def meet(
    one: Mover,
    others: Mapping[str, Mover],
    openings: Sequence[Opening],
    rules: Rules,
    seed: int,
) -> Match:
    """Every opening twice against every other, with both colours; all games at once."""
    pairings, names = [], []
    for name, other in others.items():
        for opening in openings:
            pairings.append(Pairing(white=one, black=other, opening=opening))
            pairings.append(Pairing(white=other, black=one, opening=opening))
            names.append(name)
    games = await play(pairings, rules=rules, seed=seed)
    pairs = [
        Pair(one=MODEL, other=name, points=first.score(True) + second.score(False))
        for name, first, second in zip(names, games[::2], games[1::2], strict=True)
    ]
    return Match(games=tuple(games), pairs=tuple(pairs))


def nearest(pairs: Sequence[Pair]) -> tuple[Rung, ...]:
    """The rungs that tell most of the model, by a rough look at a few games."""
    known = {rung.name: (rung.rating, rung.deviation) for rung in RUNGS}
    half = [  # half a point each way, so that a clean sheet has a rating too
        Pair(one=MODEL, other=name, points=points, games=1)
        for name in sorted({pair.other for pair in pairs})
        for points in (0.25, 0.75)
    ]
    own = fit([*pairs, *half], known)[MODEL]
    by_distance = sorted(RUNGS, key=lambda rung: abs(expected(own - rung.rating) - 0.5))
    return tuple(sorted(by_distance[:NEAREST], key=lambda rung: rung.rating))


async def climb(
    player: Player,
    pool: EnginePool,
    openings: Sequence[Opening],
    *,
    mode: str,
    games: int,
    seed: int = 0,
) -> tuple[list[Metric], Match]:
    """
    The model's Elo, and its score against each rung it met.

    Args:
        player: Plays greedily; where it is asked again it is sampled.
        pool: For the rungs.
        openings: To choose from.
        mode: A key of `MODES`.
        games: Most against each rung, two or more; a share of them in mode "resample".
        seed: Of openings and random movers.
    """
    model = PolicyMover(player.policy, player.params(), player.profile, name=MODEL)
    movers, rules = rung_movers(pool), MODES[mode]
    few = choose_openings(openings, min(PROBE_PAIRS, games // 2), seed=seed_of(seed, "probe"))
    rough = await meet(model, {n: movers[n] for n in PROBED}, few, rules, seed_of(seed, "probe"))
    rungs = nearest(rough.pairs)
    count = round(games * (RESAMPLE_SHARE if mode == "resample" else 1.0))
    chosen = choose_openings(openings, max(1, count // 2), seed=seed_of(seed, "match"))
    met = {rung.name: movers[rung.name] for rung in rungs}
    match = await meet(model, met, chosen, rules, seed_of(seed, "match", mode))
    figures = [elo_figure(f"elo/{mode}", match.pairs, rungs, NOTES[mode])]
    figures += [score_figure(f"elo/{mode}/score/{rung.name}", match, rung.name) for rung in rungs]
    return figures, match


def score_figure(name: str, match: Match, rung: str) -> Metric:
    """The share of points against a rung, openings being what the bootstrap draws again."""
    met = [(pair.points, float(pair.games)) for pair in match.pairs if pair.other == rung]
    games = [game for game in match.games if rung in (game.white, game.black)]
    illegal = sum(game.reason == "illegal move" for game in games)
    note = f"{counted(len(games), 'game')}, {illegal} of them ended by an illegal move"
    return ratio(name, met, note)


LEGALITY_GAMES = 100
"""At most."""
TEMPERATURE = 0.6


async def legality_games(player: Player, games: int, *, seed: int = 0) -> list[Game]:
    """Games of the policy against itself from the initial position, to an end or an error."""
    mover = PolicyMover(player.policy, player.params(TEMPERATURE), player.profile)
    return await play([Pairing(white=mover, black=mover)] * games, seed=seed)


def legality_figures(games: Sequence[Game]) -> list[Metric]:
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
