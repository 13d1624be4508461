"""
Verifications a second: starter references and answers made wrong, judged afresh each time.

    python benchmarks/bench_verify.py [--problems 40] [--workers 1 2] [--json]

Half of the answers are references, a quarter reference with one operator changed, a quarter do not
compile. The verdict store is off; cached answers a second are measured at the end with it on.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from rlvr.parts import BuildContext
from rlvr.run.scoring import Scorer
from rlvr.run.store import NoStore, SqliteStore
from rlvr.types import Problem, Trajectory
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.reward import CvdpReward
from rlvr_cvdp.starter.mutants import mutants
from rlvr_cvdp.task import CvdpTask

Pairs = list[tuple[Problem, Trajectory]]


def answers(count: int) -> Pairs:
    task = CvdpTask(CvdpConfig(), BuildContext())
    rng = random.Random(1)
    pairs: Pairs = []
    for place, problem in enumerate(itertools.islice(task.problems("all"), count)):
        reference = task.reference(problem)
        if reference is None or reference.files is None:
            continue
        ((path, text),) = reference.files.items()
        if place % 4 == 1:
            changed = [m.text for m in mutants(text)]
            text = rng.choice(changed) if changed else text
        elif place % 4 == 3:
            text = text.replace(";", "", 1)
        pairs.append((problem, Trajectory(problem_id=problem.id, files={path: text})))
    return pairs


async def judged(pairs: Pairs, workers: int, store: SqliteStore | None = None) -> float:
    """Seconds to judge all pairs."""
    reward = CvdpReward(CvdpConfig(), BuildContext(workers=workers))
    scorer = Scorer(reward=reward, workers=workers, store=store or NoStore())
    begun = time.monotonic()
    await scorer.pairs(pairs)
    return time.monotonic() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    pairs = answers(args.problems)
    rates = {w: len(pairs) / asyncio.run(judged(pairs, w)) for w in args.workers}
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "verdicts.sqlite")
        asyncio.run(judged(pairs, max(args.workers), store))
        cached = len(pairs) * 50 / asyncio.run(judged(pairs * 50, max(args.workers), store))
        store.close()
    if args.json:
        print(json.dumps({"answers": len(pairs), "per_second": rates, "cached": cached}))
    else:
        for workers, rate in rates.items():
            print(f"{workers} workers: {rate:.2f} verifications/s ({len(pairs)} answers)")
        first, last = min(rates), max(rates)
        print(f"scaling {first} -> {last} workers: {rates[last] / rates[first]:.2f}x")
        print(f"cached: {cached:.0f} answers/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
