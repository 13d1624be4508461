"""
What overlapping gains: a run with simulated costs, synchronous and pipelined.

    python benchmarks/bench_pipeline.py [--verify 2 --train 1 --steps 10 --staleness 1] [--json]

Every step has 8 problems with groups of 4; verification takes `--verify` seconds a step (as many
verifications at a time as workers, all of equal length), training `--train` seconds, sampling
next to nothing. The same line, parts and queue as in every run; only the costs are simulated.
Prints the time a step takes over the larger of the two costs, for staleness 0 and for the one
given, and the same with one verification in forty ten times as slow (its seconds counted in the
cost). `--trace FILE` writes the Chrome trace of the pipelined run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr import BuildContext, Datum, Outcome, Problem, Reward, RunInfo, SamplingParams, Trajectory
from rlvr.assembly.recipe import Recipe
from rlvr.builtin.file_checkpoints import FileCheckpointer
from rlvr.config.core import CheckpointOptions, EvalOptions, ParityOptions, TrainOptions
from rlvr.plugins.host import PluginHost
from rlvr.progress.spans import chrome_trace, overlap
from rlvr.progress.status import RunStatus
from rlvr.records.run_directory import RunDir
from rlvr.records.run_state import RunState
from rlvr.rollouts.group import GroupSampler
from rlvr.testing.fakes import CentredAdvantage, ReinforceLoss, TinyBackend, ToyReward, ToyTask
from rlvr.training.callbacks import Callbacks
from rlvr.training.loop import train
from rlvr.verification.runner import VerificationRunner

PROBLEMS, GROUP, WORKERS, STRAGGLER = 8, 4, 4, 40


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--verify", type=float, default=2.0, help="seconds a step")
    parser.add_argument("--train", type=float, default=1.0, help="seconds a step")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--staleness", type=int, default=1)
    parser.add_argument("--trace", type=Path, help="write the Chrome trace here")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


class SlowReward(ToyReward):
    """The toy's verdicts, each after `seconds`; one in `straggler` takes ten times as long."""

    def __init__(self, seconds: float, straggler: int = 0) -> None:
        self._seconds, self._straggler, self._count = seconds, straggler, 0

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        return None

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        self._count += 1
        is_slow = self._straggler and self._count % self._straggler == 0
        await asyncio.sleep(self._seconds * (10 if is_slow else 1))
        outcome = await super().__call__(problem, trajectory)
        assert isinstance(outcome, Reward)
        return outcome


class SlowBackend(TinyBackend):
    """A trainer whose update takes `seconds`."""

    seconds = 0.0

    async def update(self, data: Sequence[Datum], loss: Any) -> dict[str, float]:
        await asyncio.sleep(self.seconds)
        return await super().update(data, loss)


def seconds_a_step(args: argparse.Namespace, staleness: int, straggler: int = 0) -> dict[str, Any]:
    """Wall time of the whole run over its steps, and how much of it overlapped."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        for name in ("trajectories", "checkpoints"):
            (directory / name).mkdir()
        status = RunStatus()
        each = args.verify * WORKERS / (PROBLEMS * GROUP)
        runner = VerificationRunner(
            reward=SlowReward(each, straggler), workers=WORKERS, status=status
        )
        backend = SlowBackend(seed=3, lr=60.0)
        backend.seconds = args.train
        task = ToyTask()
        recipe = Recipe(
            task=task,
            reward=runner.reward,
            runner=runner,
            sampler=GroupSampler(),
            backend=backend,
            params=SamplingParams(max_tokens=1, group_size=GROUP),
            eval_sampler=GroupSampler(),
            advantage=CentredAdvantage(),
            loss=ReinforceLoss(),
            checkpointer=FileCheckpointer(None, BuildContext(run_dir=directory)),
            problems=tuple(task.problems("train")),
            eval_problems=(),
            steps=args.steps,
            seed=1,
            train=TrainOptions(problems=PROBLEMS),
            eval=EvalOptions(),
            checkpoint=CheckpointOptions(every=0),
            parity=ParityOptions(),
            max_staleness=staleness,
        )
        info = RunInfo(
            id="bench",
            directory=directory,
            plugin="toy",
            algo="-",
            model="tiny",
            steps=args.steps,
            seed=1,
        )
        watch = Callbacks(
            host=PluginHost.load({"RLVR_PLUGINS": ""}),
            run=info,
            directory=RunDir(directory),
            status=status,
        )
        begun = time.perf_counter()
        asyncio.run(train(recipe, RunState(), watch))
        seconds = (time.perf_counter() - begun) / args.steps
        spans = RunDir(directory).read_lines("trace.jsonl")
    return {"seconds_a_step": seconds, "overlap": overlap(spans)["overlap"], "spans": spans}


def main() -> None:
    args = parse()
    slower = args.verify * (1 + 9 / STRAGGLER)
    found = {
        "synchronous": (args.verify, seconds_a_step(args, 0)),
        "pipelined": (args.verify, seconds_a_step(args, args.staleness)),
        "synchronous, stragglers": (slower, seconds_a_step(args, 0, STRAGGLER)),
        "pipelined, stragglers": (slower, seconds_a_step(args, args.staleness, STRAGGLER)),
    }
    if args.trace:
        args.trace.write_text(json.dumps(chrome_trace(found["pipelined"][1]["spans"])))
    rows = {
        name: {
            "seconds_a_step": one["seconds_a_step"],
            "over_the_larger": one["seconds_a_step"] / max(verify, args.train),
            "overlap": one["overlap"],
        }
        for name, (verify, one) in found.items()
    }
    if args.json:
        settings = {k: v for k, v in vars(args).items() if k not in ("trace", "json")}
        print(json.dumps({**rows, "settings": settings}))
        return
    print(f"verification {args.verify:g} s, training {args.train:g} s a step; {args.steps} steps")
    for name, row in rows.items():
        print(
            f"{name:26} {row['seconds_a_step']:6.2f} s a step, "
            f"{row['over_the_larger']:.2f} x the larger, overlap {row['overlap']:.2f}"
        )


if __name__ == "__main__":
    main()
