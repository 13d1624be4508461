"""
Distillation in the house: SAD against token-level KL and fine-tuning, at equal steps.

    python benchmarks/bench_sad.py [--steps 200] [--seeds 1 2 3] [--arms sft kl sad] [--out DIR]

The shipped teacher lives in houses of split train once; its successful episodes are what all
off-policy arms learn from, the same in the same number of steps of the same size from the same
start. Then each student lives in the same held-out houses, whose goals stand in no house of split
train: greedily and at temperature 1.

  sft   cross entropy of the teacher's words (hard labels), mean over reasoning and action tokens
  kl    forward KL to the teacher's distributions, mean over the same tokens
  span  forward KL, reasoning and action each a mean of its own: the two terms of SAD
  sad   span, with the paper's curriculum: easy trajectories first
  opd   the student's own episodes, forward KL, mean over tokens
  opd-sad  the student's own episodes, forward KL, a mean for each kind of span
  kl-opd-sad  half of the steps as `kl`, then half as `opd-sad`
  kl-opd-sad-wide  the same, but its own episodes end after 8 turns, in 5,000 houses instead of 512

Prints a table with 95 % intervals (Wilson, over the episodes of all seeds) and differences to `kl`
(bootstrap, paired by seed and house). `--json` prints all of it.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from rlvr import BuildContext, open_policy
from rlvr.cli.main import main as command_line
from rlvr_household.config import HouseConfig
from rlvr_household.play import figures, play, wilson
from rlvr_household.starter.model_path import student_model, teacher_model
from rlvr_household.task import HouseTask

REPLAY = ["--plugin", "sad", "sad.held_out=0", "eval.every=0"]
LIVE = ["--task", "house", "--algo", "opd", "opd.mode=supervised", "advantage.reward_coef=0"]
LIVE += ["opd.loss=forward_kl", "eval.every=0", "sampler.group_size=1"]
KL = [*REPLAY, "--algo", "sad", "distill.reduction=token"]
OPD_SAD = [*LIVE, "opd.reduction=span"]
ARMS: dict[str, list[list[str]]] = {
    "sft": [[*REPLAY, "--algo", "sft", "--sampler", "replay"]],
    "kl": [KL],
    "span": [[*REPLAY, "--algo", "sad", "distill.reduction=span"]],
    "sad": [[*REPLAY, "--algo", "sad", "distill.reduction=span", "--curriculum", "complexity"]],
    "opd": [[*LIVE, "opd.reduction=token"]],
    "opd-sad": [OPD_SAD],
    "kl-opd-sad": [KL, OPD_SAD],
    "kl-opd-sad-wide": [KL, [*OPD_SAD, "house.steps=8", "house.train=5000"]],
}
"""What `rlvr run` is asked, by stage; the stages share the steps, each goes on from the last."""
TEACHER_KEYS = {"sft": "", "opd": "advantage.teacher", "sad": "distill.teacher"}
FIGURES = ("success", "steps", "reasoning_tokens", "cot_match", "action_match")
DRAWS = 2000


def rlvr(*words: str) -> str:
    """What the command prints, called in this process; its errors end this program."""
    told = io.StringIO()
    with redirect_stdout(told):
        code = command_line(list(words))
    if code:
        sys.exit(f"rlvr {' '.join(words)} ended with exit code {code}")
    return told.getvalue()


def record(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The teacher's episodes in houses of split train; how good it is there."""
    words = ["--out", str(path), "--model", "teacher", "--problems", str(options.trajectories)]
    words += ["--json", *options.overrides]
    found: dict[str, Any] = json.loads(rlvr("household", "play", *words))
    return found


async def live(
    model: str, houses: int, overrides: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Notes of the episodes of a model in the held-out houses, by temperature."""
    config = HouseConfig(test=houses, train=1)
    problems = HouseTask(config, BuildContext()).problems("test")
    found = {}
    async with open_policy("house", model=model, options=overrides) as opened:
        for temperature in (0.0, 1.0):
            played = await play(
                opened.policy, problems, steps=config.steps, temperature=temperature, seed=1
            )
            found[f"{temperature:g}"] = [dict(one.notes) for one in played]
    return found


def train(
    arm: str, seed: int, data: Path, root: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """One student: its episodes, and what it cost."""
    begun, spent = time.monotonic(), time.process_time()
    model, stages = student_model(), ARMS[arm]
    for number, words in enumerate(stages, 1):
        out = root / f"{arm}-{seed}" / str(number)
        steps, is_live = options.steps // len(stages), LIVE[0] in words
        command = [*words, "--model", model, "--seed", str(seed), "--out", str(out)]
        command += ["--steps", str(steps), f"train.problems={options.batch}"]
        command += [f"train.lr={options.live_lr if is_live else options.lr}"]
        command += ["train.warmup=5", "train.decay=cosine", f"checkpoint.every={steps}", "-qq"]
        if not is_live:
            command += ["--dataset", str(data)]
        if key := TEACHER_KEYS[words[words.index("--algo") + 1]]:
            command += [f"{key}={teacher_model()}"]
        rlvr("run", *command, *options.overrides)
        model = f"gpt2:{sorted((out / 'checkpoints').iterdir())[-1] / 'model'}"
    cost = {
        "minutes": (time.monotonic() - begun) / 60,
        "cpu_minutes": (time.process_time() - spent) / 60,
    }
    episodes = asyncio.run(live(model, options.houses, options.overrides))
    return {"seed": seed, **cost, "episodes": episodes}


def row(name: str, runs: Sequence[dict[str, Any]]) -> str:
    """A line of the table: success at either temperature, then the other figures, greedily."""
    cells = []
    for temperature in ("0", "1"):
        notes = [note for run in runs for note in run["episodes"][temperature]]
        done = sum(note["done"] for note in notes)
        low, high = wilson(done, len(notes))
        own = "/".join(f"{share(run['episodes'][temperature]) * 100:.0f}" for run in runs)
        value = done / len(notes)
        cells += [f"{value * 100:.1f} [{low * 100:.1f}, {high * 100:.1f}]"]
        cells += [own] if len(runs) > 1 and temperature == "0" else []
        if len(runs) == 1 and temperature == "0":
            cells.append("-")
    greedy = [note for run in runs for note in run["episodes"]["0"]]
    found = {f.name.removeprefix("house/"): f for f in figures(greedy)}
    cells += [f"{found[name].value:.2f}" for name in FIGURES[1:3]]
    cells += [f"{found[name].value * 100:.1f}" for name in FIGURES[3:]]
    cells.append(f"{sum(run.get('cpu_minutes', 0) for run in runs) / len(runs):.1f}")
    return f"| {name} | " + " | ".join(cells) + " |"


HEAD = """\
| student | success, greedy, % | by seed | success, T = 1, % | steps | reasoning tokens a turn \
| CoT-match, % | action match, % | CPU min a run |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def share(notes: Sequence[dict[str, Any]]) -> float:
    """Share of episodes that reached their goal."""
    return sum(note["done"] for note in notes) / len(notes)


def difference(one: Sequence[dict[str, Any]], other: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Success of one arm less another's, by temperature, paired by seed and house."""
    told = {}
    for temperature in ("0", "1"):
        gaps = np.array(
            [
                float(a["done"]) - float(b["done"])
                for x, y in zip(one, other, strict=True)
                for a, b in zip(x["episodes"][temperature], y["episodes"][temperature], strict=True)
            ]
        )
        rows = np.random.default_rng(0).integers(0, len(gaps), (DRAWS, len(gaps)))
        low, high = np.percentile(gaps[rows].mean(1), [2.5, 97.5])
        told[temperature] = {"gain": float(gaps.mean()), "low": float(low), "high": float(high)}
    return told


def main() -> int:
    """Record, train, live; print the table."""
    options = parse()
    root = options.out or Path(tempfile.mkdtemp(prefix="rlvr-sad-"))
    root.mkdir(parents=True, exist_ok=True)
    begun, spent = time.monotonic(), time.process_time()
    data = root / "teacher.jsonl"
    teacher = record(data, options)
    say = (lambda *words: None) if options.json else (lambda *words: print(*words, flush=True))
    say(f"teacher on split train at temperature 1: {json.dumps(teacher)}")
    results: dict[str, list[dict[str, Any]]] = {}
    for name, spec in (("(teacher)", teacher_model()), ("(start)", student_model())):
        results[name] = [
            {"seed": 0, "episodes": asyncio.run(live(spec, options.houses, options.overrides))}
        ]
        say(row(name, results[name]))
    for seed in options.seeds:
        for arm in options.arms:
            results.setdefault(arm, []).append(train(arm, seed, data, root, options))
            (root / "results.json").write_text(json.dumps(results))
            say(row(f"{arm}, seed {seed}", results[arm][-1:]))
    others = [arm for arm in options.arms if arm != "kl" and "kl" in options.arms]
    less = {arm: difference(results[arm], results["kl"]) for arm in others}
    say(f"\n{HEAD}")
    for name, runs in results.items():
        say(row(name, runs))
    for arm, gain in less.items():
        told = "; ".join(
            f"{name} {g['gain'] * 100:+.1f} [{g['low'] * 100:+.1f}, {g['high'] * 100:+.1f}]"
            for name, g in zip(("greedy", "T = 1"), gain.values(), strict=True)
        )
        say(f"{arm} less kl, points: {told}")
    minutes, cpu = (time.monotonic() - begun) / 60, (time.process_time() - spent) / 60
    say(f"{minutes:.1f} minutes in all, {cpu:.1f} of processor time")
    if options.json:
        print(json.dumps({"teacher": teacher, "results": results, "less_kl": less}))
    return 0


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=200, help="of each student")
    parser.add_argument("--batch", type=int, default=8, help="trajectories a step")
    parser.add_argument("--lr", type=float, default=3e-3, help="on the teacher's episodes")
    parser.add_argument("--live-lr", type=float, default=1e-3, help="on the student's own")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--arms", nargs="+", default=["sft", "kl", "sad"], choices=list(ARMS))
    parser.add_argument("--trajectories", type=int, default=384, help="houses the teacher lives in")
    parser.add_argument("--houses", type=int, default=100, help="held-out houses")
    parser.add_argument("--out", type=Path, help="keep trajectories and runs here")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    parser.add_argument("overrides", nargs="*", metavar="torch.key=value")
    return parser.parse_intermixed_args()


if __name__ == "__main__":
    sys.exit(main())
