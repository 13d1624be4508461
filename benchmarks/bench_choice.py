"""
Choosing the problems of a step out of 100,000, and the state of a checkpoint.

    python benchmarks/bench_choice.py
    python benchmarks/bench_choice.py --problems 1000000 --counts 64 --steps 5000

Per curriculum: the check before a run begins, which makes a choice of step 0; the first choice of
the run, which was resumed at that step; the median of the next ones. All in milliseconds of
processor time (other work on the machine changes wall time more). Each is a refill while sampling
runs ahead: one batch is handed out, and the pass rates are three steps old. `pass-rate, all alike`
is the worst case: every record is the same. The state holds the pass rate of every problem.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from rlvr import (
    BuildContext,
    Curriculum,
    PassRate,
    Problem,
    Reward,
    ScoredGroup,
    SingleTurn,
    Trajectory,
)
from rlvr.curriculum.builtin import (
    ByDifficulty,
    ByPassRate,
    ByStrength,
    DifficultyOptions,
    Epochs,
    PassRateOptions,
    StrengthOptions,
)
from rlvr.curriculum.select import check_choice, problems_of_step
from rlvr.records.run_state import RunState
from rlvr.seeds import seed_of

STAGES = ("easy", "medium", "hard")
CONTEXT = BuildContext()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--problems", type=int, default=100_000)
    parser.add_argument("--counts", type=int, nargs="+", default=[8, 64], help="of a step")
    parser.add_argument("--steps", type=int, nargs="+", default=[50, 5000])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", default="", help="curricula whose name has this in it")
    return parser.parse_args()


def pool(total: int) -> tuple[Problem, ...]:
    """New problems, so that nothing is known of them."""
    return tuple(
        Problem(id=f"family/problem-{i:07d}", prompt=(), labels={"difficulty": STAGES[i % 3]})
        for i in range(total)
    )


def curricula(audit: Path) -> dict[str, Callable[[], Curriculum]]:
    """Each built-in one, and those of CVDP where it is installed."""
    found: dict[str, Callable[[], Curriculum]] = {
        "epochs": lambda: Epochs(None, CONTEXT),
        "difficulty": lambda: ByDifficulty(DifficultyOptions(), CONTEXT),
        "difficulty, long ramp": lambda: ByDifficulty(
            DifficultyOptions(ramp_steps=20_000), CONTEXT
        ),
        "pass-rate, some met": lambda: ByPassRate(PassRateOptions(), CONTEXT),
        "pass-rate, all met": lambda: ByPassRate(PassRateOptions(), CONTEXT),
        "pass-rate, all alike": lambda: ByPassRate(PassRateOptions(), CONTEXT),
        "strength": lambda: ByStrength(StrengthOptions(audit=str(audit)), CONTEXT),
    }
    try:
        from rlvr_cvdp.config import CvdpConfig
        from rlvr_cvdp.datasets.curriculum import TrainingOrder
        from rlvr_cvdp.datasets.strengths import read_audit
    except ImportError:
        return found
    known = read_audit(audit)
    for weak, name in [
        ("keep", "difficulty"),
        ("keep", "pass-rate"),
        ("keep", "strength"),
        ("weigh", "difficulty"),
        ("weigh", "pass-rate"),
    ]:
        config = CvdpConfig(curriculum=name, weak=weak, curriculum_steps=20_000, audit=str(audit))
        found[f"cvdp {name}, weak={weak}"] = partial(TrainingOrder, config, known)
    return found


def history_of(name: str, problems: tuple[Problem, ...], step: int) -> dict[str, PassRate]:
    draw = random.Random(1)
    if "alike" in name:
        return {p.id: PassRate(rate=0.5, count=3, step=0) for p in problems}
    met = problems[: len(problems) // 2] if "some" in name else problems
    return {
        p.id: PassRate(rate=draw.randrange(9) / 8, count=1 + i % 9, step=i * step // len(met))
        for i, p in enumerate(met)
    }


class Ordered(SingleTurn):
    """A task that chooses as `order` does, or not at all."""

    def __init__(self, order: Curriculum | None) -> None:
        self._order = order

    def problems(self, split: str) -> Any:
        return ()

    def curriculum(self) -> Curriculum | None:
        return self._order


def took(work: Callable[[], Any]) -> float:
    begun = time.process_time()
    work()
    return (time.process_time() - begun) * 1000


def choices(args: argparse.Namespace, audit: Path) -> None:
    makes: dict[str, Any] = {"none": lambda: None, **curricula(audit)}
    print(f"{'curriculum':<28}{'count':>6}{'step':>7}{'check':>8}{'first':>8}{'next':>8}  ms")
    for name, make in makes.items():
        for count, step in product(args.counts, args.steps):
            if args.only in name:
                one = Choice(name, make(), args.problems, count, step)
                check, first = took(one.check), took(lambda one=one: one.at(0))
                later = [took(lambda one=one, i=i: one.at(i)) for i in range(1, args.repeats + 1)]
                median = statistics.median(later)
                times = f"{check:>8.1f}{first:>8.1f}{median:>8.1f}"
                print(f"{name:<28}{count:>6}{step:>7}{times}", flush=True)


class Choice:
    """The choices of a run from a step on."""

    def __init__(self, name: str, order: Curriculum | None, total: int, count: int, step: int):
        self.problems, self.task = pool(total), Ordered(order)
        self.count, self.step, self.seed = count, step, seed_of(name, count, step)
        self.history = RunState(history=history_of(name, self.problems, step)).history
        self.before = [problem.id for problem in self.problems[:count]]

    def check(self) -> None:
        check_choice(self.task, self.problems, self.count, seed=self.seed, curriculum=None)

    def at(self, later: int) -> None:
        problems_of_step(
            self.task,
            (*self.problems, *()),  # a run makes them anew at each step
            self.count,
            seed=self.seed,
            state=RunState(step=self.step + later, history=self.history),
            handed_out=self.before,
            trained=self.step + later - 3,
        )


def state(args: argparse.Namespace) -> None:
    problems = pool(args.problems)
    at = RunState(step=5000, history=history_of("", problems, 5000))
    right = Reward(value=1.0, score01=1.0)
    groups = [
        ScoredGroup(problem=p, trajectories=[Trajectory.from_text(p.id, "x")], outcomes=[right])
        for p in problems[-64:]
    ]
    again = [took(lambda: at.advanced(1.0, groups)) for _ in range(args.repeats)]
    saved = [took(lambda: json.dumps(at.to_json())) for _ in range(args.repeats)]
    text = json.dumps(at.to_json())
    loaded = [took(lambda: RunState.from_json(json.loads(text))) for _ in range(args.repeats)]
    for name, times in [("advanced", again), ("to JSON", saved), ("from JSON", loaded)]:
        print(f"state {name:<12}{statistics.median(times):>8.1f} ms")
    print(f"state size {len(text) / 1e6:.1f} MB")


def main() -> None:
    args = parse()
    with tempfile.TemporaryDirectory() as folder:
        audit = Path(folder) / "audit.json"
        draw = random.Random(2)
        entries = {
            p.id: {"strength": draw.choice([0.25, 0.5, 0.9, None]), "weak": draw.random() < 0.3}
            for p in pool(args.problems)
        }
        audit.write_text(json.dumps({"version": 1, "problems": entries}))
        choices(args, audit)
    state(args)


if __name__ == "__main__":
    main()
