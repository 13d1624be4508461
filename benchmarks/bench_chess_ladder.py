"""
Plays the low-end ladder of `rlvr eval --plugin chess`: random, mixes of Stockfish, Stockfish.

    python benchmarks/bench_chess_ladder.py [--games 200] [--openings FILE] [--json]

Each rung meets the next one with every opening twice, both colours; ratings are fitted together,
random being 0, with 95 % intervals of a bootstrap over pairs of games. Beside them stand those that
the evaluation uses.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from pathlib import Path

import numpy as np
from attrs import evolve

from rlvr_chess.engine.pool import EngineConfig, EnginePool
from rlvr_chess.evaluation.games.elo import Pair, fit
from rlvr_chess.evaluation.games.ladder import RUNGS, meet, rung_movers
from rlvr_chess.selfplay.game import Rules
from rlvr_chess.selfplay.openings import book, choose_openings, read_openings

DRAWS = 500


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--games", type=int, default=200, help="of each pair of neighbours")
    parser.add_argument("--openings", type=Path, help="UCI lines (default: our book)")
    parser.add_argument("--engines", type=int, default=2, help="engine processes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


async def results(options: argparse.Namespace) -> list[Pair]:
    """Every rung against the next one."""
    lines = read_openings(options.openings) if options.openings else book()
    chosen = choose_openings(lines, options.games // 2, seed=options.seed)
    pairs: list[Pair] = []
    async with EnginePool(EngineConfig(processes=options.engines)) as pool:
        movers = rung_movers(pool)
        for lower, upper in itertools.pairwise(rung.name for rung in RUNGS):
            other = {lower: movers[lower]}
            match = await meet(movers[upper], other, chosen, Rules(), options.seed)
            pairs += [evolve(pair, one=upper) for pair in match.pairs]
    return pairs


def main() -> None:
    options = parse()
    begun = time.monotonic()
    pairs = asyncio.run(results(options))
    known = {RUNGS[0].name: (0.0, 0.0)}
    fitted = fit(pairs, known)
    rng = np.random.default_rng(0)
    draws = [
        fit([pairs[i] for i in rng.integers(0, len(pairs), len(pairs))], known, fitted)
        for _ in range(DRAWS)
    ]
    rows = []
    for rung in RUNGS:
        drawn = [draw[rung.name] for draw in draws if rung.name in draw]
        low, high = np.percentile(drawn, [2.5, 97.5])
        rows.append(
            {
                "rung": rung.name,
                "rating": round(fitted[rung.name], 1),
                "low": round(float(low), 1),
                "high": round(float(high), 1),
                "used": rung.rating,
            }
        )
    seconds = time.monotonic() - begun
    if options.json:
        print(json.dumps({"games": options.games, "seconds": round(seconds, 1), "rungs": rows}))
        return
    print(f"{'rung':10}{'rating':>8}   95 % interval    used")
    for row in rows:
        interval = f"[{row['low']:.0f}, {row['high']:.0f}]"
        print(f"{row['rung']:10}{row['rating']:8.0f}   {interval:16} {row['used']:.0f}")
    print(f"{options.games} games a pair, {seconds:.0f} s")


if __name__ == "__main__":
    main()
