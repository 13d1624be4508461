"""
Reinforcement learning, distillation, or both: the CVDP starter at equal samples.

    python benchmarks/bench_rl_distill.py [--steps 8] [--seeds 1] [--teacher SPEC] [--out DIR]

The same start model takes the same number of steps on the same problems by GRPO (reward alone), by
OPD (the teacher alone, `advantage.reward_coef=0`) and by both (OPD with the reward). Without
`--teacher` the teacher is made first: the starter after `--teacher-steps` steps of GRPO on the
train split, so it has seen no held-out family. Prints held-out pass@1 before and after with 95 %
intervals, the gain paired by problem, and samples and minutes of each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ARMS: dict[str, list[str]] = {
    "grpo": ["--algo", "grpo"],
    "opd": ["--algo", "opd", "advantage.reward_coef=0"],
    "both": ["--algo", "opd", "advantage.reward_coef=1"],
}


def run(out: Path, seed: int, steps: int, words: list[str]) -> dict[str, Any]:
    """One run from the starter: its evaluations, what it sampled, and how long it took."""
    command = [sys.executable, "-m", "rlvr.cli.main", "run", "--plugin", "cvdp", "--json"]
    command += ["--seed", str(seed), "--steps", str(steps), "--out", str(out), *words]
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    summary = json.loads(done.stdout)
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {
        "seed": seed,
        "before": summary["evaluations"][0],
        "after": summary["evaluations"][-1],
        "gain": summary["gain"],
        "samples": sum(int(m["data/trajectories"]) for m in metrics),
        "teacher_kl": [m["teacher/kl"] for m in metrics if "teacher/kl" in m],
        "minutes": (time.monotonic() - begun) / 60,
    }


def share(report: dict[str, Any]) -> str:
    """`34.3 % [28.0, 40.7]`."""
    return f"{report['pass1'] * 100:.1f} % [{report['low'] * 100:.1f}, {report['high'] * 100:.1f}]"


def row(name: str, found: dict[str, Any]) -> str:
    """A line of the table."""
    gain = found["gain"]
    points = f"{gain['pass1'] * 100:+.1f} [{gain['low'] * 100:+.1f}, {gain['high'] * 100:+.1f}]"
    kl = found["teacher_kl"]
    told = f"{kl[0]:.3f} -> {kl[-1]:.3f}" if kl else "-"
    return (
        f"| {name} | {found['seed']} | {found['samples']} | {share(found['before'])} | "
        f"{share(found['after'])} | {points} | {told} | {found['minutes']:.1f} |"
    )


def main() -> int:
    """Make the teacher, train the three students, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--steps", type=int, default=8, help="of each student")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--teacher", help="model spec; default: made by GRPO")
    parser.add_argument("--teacher-steps", type=int, default=24)
    parser.add_argument("--out", type=Path, help="keep the run directories here")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    args = parser.parse_intermixed_args()
    root = args.out or Path(tempfile.mkdtemp(prefix="rlvr-distill-"))
    results: dict[str, list[dict[str, Any]]] = {}
    if not args.json:
        print(
            "| trained by | seed | samples | before | after | gain, points | KL to teacher | min |"
        )
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")

    def note(name: str, found: dict[str, Any]) -> None:
        results.setdefault(name, []).append(found)
        if not args.json:
            print(row(name, found), flush=True)

    teacher = args.teacher
    if teacher is None:
        words = [*ARMS["grpo"], *args.overrides]
        note("(teacher)", run(root / "teacher", 101, args.teacher_steps, words))
        teacher = f"gpt2:{sorted((root / 'teacher' / 'checkpoints').iterdir())[-1] / 'model'}"
    for seed in args.seeds:
        for name, own in ARMS.items():
            asked = ["--teacher", teacher] if name != "grpo" else []
            words = [*own, *asked, *args.overrides]
            note(name, run(root / f"{name}-{seed}", seed, args.steps, words))
    if args.json:
        print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
