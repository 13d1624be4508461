"""
What it costs that rollouts are independent, and what it gains, against a bare asyncio program.

    python benchmarks/bench_rollouts.py [--rollouts 64 --workers 8 --rounds 5] [--json]

Latencies are simulated: a completion, a tool's turn and a verification take their time asleep,
drawn once for each rollout and turn, the same in both programs. The bare one is a coroutine a
rollout, `generate`, `take`, ..., and a semaphore around `verify`; ours is the sampler, the runner
and all checks of a run. For 1, 4 and 8 turns it prints the ratio of their times (median of the
rounds, which take turns), when the first verification begins after the first rollout has ended,
and the seconds from the last completion to the last verdict, in both.

    python benchmarks/bench_rollouts.py --before PYTHON [--turns 1 3 --rounds 3 --steps 4]

Real: `rlvr run --plugin cvdp` with the starter model and real simulators, by this Python and by one
of another checkout, in turns. Prints the seconds of a step from its first request to its last
verdict, and its tail from the last completion to the last verdict: medians over all steps but the
first of each run, ours over the other's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field

from rlvr import (
    BuildContext,
    Completion,
    Episode,
    GenerateRequest,
    Message,
    Policy,
    Problem,
    Reward,
    RewardFn,
    SamplingParams,
    Task,
    Trajectory,
)
from rlvr.rollouts.group import GroupSampler, scored_groups
from rlvr.testing.fakes.tokenizer import CharTokenizer
from rlvr.verification.runner import VerificationRunner

GROUP = 4
MEAN_S = {"generate": 0.05, "take": 0.05, "verify": 0.05}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--rollouts", type=int, default=64)
    parser.add_argument("--workers", type=int, default=8, help="verifications at a time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--before", help="Python of another checkout: real runs of both")
    parser.add_argument("--steps", type=int, default=4, help="of a real run")
    return parser.parse_args()


@define
class Clock:
    """When the first rollout and the last completion ended, when verdicts began and ended."""

    first_rollout: float = 0.0
    last_completion: float = 0.0
    first_verification: float = 0.0
    last_verdict: float = 0.0
    begun: float = field(factory=time.perf_counter)

    def completed(self) -> None:
        self.last_completion = time.perf_counter()

    def rolled_out(self) -> None:
        self.first_rollout = self.first_rollout or time.perf_counter()

    def verifying(self) -> None:
        self.first_verification = self.first_verification or time.perf_counter()

    def judged(self) -> None:
        self.last_verdict = time.perf_counter()

    @property
    def seconds(self) -> float:
        return self.last_verdict - self.begun

    @property
    def tail(self) -> float:
        return self.last_verdict - self.last_completion

    @property
    def delay(self) -> float:
        return self.first_verification - self.first_rollout


@define
class Latencies:
    """Seconds of each act of each rollout, drawn once: exponential with the means above."""

    turns: int
    seed: int

    def of(self, rollout: int, act: str, turn: int = 0) -> float:
        rng = random.Random(f"{self.seed}/{rollout}/{act}/{turn}")
        return rng.expovariate(1.0 / MEAN_S[act])


async def bare(latencies: Latencies, rollouts: int, workers: int) -> Clock:
    """A coroutine a rollout, nothing else."""
    clock, slots = Clock(), asyncio.Semaphore(workers)

    async def one(rollout: int) -> None:
        for turn in range(latencies.turns):
            await asyncio.sleep(latencies.of(rollout, "generate", turn))
            clock.completed()
            await asyncio.sleep(latencies.of(rollout, "take", turn))
        clock.rolled_out()
        async with slots:
            clock.verifying()
            await asyncio.sleep(latencies.of(rollout, "verify"))
        clock.judged()

    await asyncio.gather(*(one(rollout) for rollout in range(rollouts)))
    return clock


class Sleeping(Policy):
    """Says the number of the rollout, which stands in its prompt, after a while."""

    version, digest, context_length = 0, "d", 1 << 16

    def __init__(self, latencies: Latencies, clock: Clock) -> None:
        self.tokenizer = CharTokenizer()
        self._latencies, self._clock = latencies, clock

    async def generate(self, request: GenerateRequest) -> Completion:
        said = self.tokenizer.decode(request.prompt.tolist())
        rollout, turn = (int(x) for x in said.rsplit("<", 1)[1].split(">")[0].split(" "))
        await asyncio.sleep(self._latencies.of(rollout, "generate", turn))
        self._clock.completed()
        tokens = self.tokenizer.encode(f"({rollout})")
        return Completion(
            tokens=tokens, logprobs=[-1.0] * len(tokens), text=f"({rollout})", finish="stop"
        )


class Acting(Episode):
    """Turns whose tool takes a while."""

    def __init__(self, rollout: int, latencies: Latencies, clock: Clock) -> None:
        self._rollout, self._latencies, self._clock = rollout, latencies, clock
        self._turn = 0

    def prompt(self) -> Sequence[Message] | None:
        if self._turn == self._latencies.turns:
            self._clock.rolled_out()
            return None
        return (Message(role="user", content=f"<{self._rollout} {self._turn}>"),)

    async def take(self, completion: str) -> None:
        await asyncio.sleep(self._latencies.of(self._rollout, "take", self._turn))
        self._turn += 1


class Simulated(Task):
    """As many rollouts as are asked for, one after the other in the order of their episodes."""

    def __init__(self, latencies: Latencies, clock: Clock) -> None:
        self._latencies, self._clock, self._opened = latencies, clock, 0

    def problems(self, split: str) -> Iterable[Problem]:
        return ()

    def episode(self, problem: Problem) -> Episode:
        self._opened += 1
        return Acting(self._opened - 1, self._latencies, self._clock)


class Verifier(RewardFn):
    """A verdict after a while."""

    def __init__(self, latencies: Latencies, clock: Clock) -> None:
        self._latencies, self._clock = latencies, clock

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
        self._clock.verifying()
        rollout = int(trajectory.completion.strip("()"))
        await asyncio.sleep(self._latencies.of(rollout, "verify"))
        self._clock.judged()
        return Reward(value=0.0, score01=0.0)


async def ours(latencies: Latencies, rollouts: int, workers: int) -> Clock:
    """The sampler and the runner of a run."""
    clock = Clock()
    problems = [Problem(id=str(i), prompt=()) for i in range(rollouts // GROUP)]
    await scored_groups(
        GroupSampler(None, BuildContext()),
        Sleeping(latencies, clock),
        Simulated(latencies, clock),
        problems,
        SamplingParams(max_tokens=16, group_size=GROUP),
        VerificationRunner(reward=Verifier(latencies, clock), salt=None, workers=workers),
    )
    return clock


def steps_of(python: str, turns: int, seed: int, steps: int) -> list[tuple[float, float]]:
    """Seconds and tail of each step of a real run but the first, which warms everything up."""
    options = [f"cvdp.turns={turns}", "eval.samples=0", "verify.store=off", "checkpoint.every=0"]
    flags = {"plugin": "cvdp", "algo": "grpo", "steps": str(steps), "seed": str(seed)}
    with tempfile.TemporaryDirectory() as folder:
        words = [word for name, value in flags.items() for word in (f"--{name}", value)]
        command = [python, "-m", "rlvr.cli.main", "run", *words, "--out", "run", *options]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        lines = (Path(folder) / "run" / "trace.jsonl").read_text().splitlines()
    spans = [json.loads(line) for line in lines]
    found = []
    for step in range(2, steps + 1):
        mine = [s for s in spans if s["step"] == step]
        sampled = [s for s in mine if s["name"] == "sample"]
        judged = max(s["end_s"] for s in mine if s["name"] == "verify")
        begun, drawn = min(s["begin_s"] for s in sampled), max(s["end_s"] for s in sampled)
        found.append((judged - begun, judged - drawn))
    return found


def real(args: argparse.Namespace) -> None:
    """Ours and another checkout's, in turns."""
    for turns in args.turns:
        pythons = {"ours": sys.executable, "before": args.before}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in pythons}
        for round_ in range(args.rounds):
            for name, python in sorted(pythons.items(), reverse=bool(round_ % 2)):
                found[name] += steps_of(python, turns, round_ + 1, args.steps)
        (ours_s, ours_tail), (before_s, before_tail) = (
            [statistics.median(values) for values in zip(*found[name], strict=True)]
            for name in pythons
        )
        print(
            f"{turns} turns: a step {ours_s:.2f} s over {before_s:.2f} s "
            f"({ours_s / before_s:.2f}); tail {ours_tail:.2f} s over {before_tail:.2f} s "
            f"({ours_tail / before_tail:.2f}); {len(found['ours'])} steps each",
            flush=True,
        )


def main() -> None:
    args = parse()
    if args.before:
        real(args)
        return
    found: list[dict[str, Any]] = []
    for turns in args.turns:
        pairs = []
        for round_ in range(args.rounds):
            latencies = Latencies(turns=turns, seed=round_)
            programs = [bare, ours] if round_ % 2 else [ours, bare]
            clocks = {p: asyncio.run(p(latencies, args.rollouts, args.workers)) for p in programs}
            pairs.append((clocks[bare], clocks[ours]))
        median = {
            "turns": turns,
            "ratio": statistics.median(b.seconds / a.seconds for a, b in pairs),
            "bare_s": statistics.median(a.seconds for a, _ in pairs),
            "ours_s": statistics.median(b.seconds for _, b in pairs),
            "first_verification_ms": statistics.median(1000 * b.delay for _, b in pairs),
            "bare_tail_s": statistics.median(a.tail for a, _ in pairs),
            "ours_tail_s": statistics.median(b.tail for _, b in pairs),
        }
        found.append(median)
        if not args.json:
            print(
                f"{turns} turns: {median['ratio']:.3f} of the bare program's time "
                f"({median['ours_s']:.2f} s over {median['bare_s']:.2f} s); first verification "
                f"{median['first_verification_ms']:.1f} ms after the first rollout's end; tail "
                f"{median['ours_tail_s']:.2f} s, bare {median['bare_tail_s']:.2f} s",
                flush=True,
            )
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
