"""
A policy that learns to cheat its verifier is caught within the run; an honest one is not accused.

    python benchmarks/bench_second_opinion.py [--steps 40] [--seeds 1] [--out DIR]

Two runs of `rlvr run --plugin formula` (examples/rlvr-formula) from the same start model and of the
same length: the verifier of one tests at a single value of x (`formula.weak=dstf`), that of the
other at enough of them. Prints, for each, the share called right at the end, when the alarm was
raised, and how much of what was called right the second judge rejected, with its 95 % interval.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[1] / "examples" / "rlvr-formula"
ARMS: dict[str, list[str]] = {"cheated": ["formula.weak=dstf"], "honest": []}


def installed(folder: Path) -> Path:
    """A folder for PYTHONPATH that holds what `pip install -e examples/rlvr-formula` leaves."""
    info = folder / "rlvr_formula-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rlvr-formula\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[rlvr]\nformula = rlvr_formula.plugin\n")
    (folder / "rlvr_formula").symlink_to(EXAMPLE / "rlvr_formula")
    return folder


def rlvr(site: Path, *words: str) -> str:
    """Standard output of an `rlvr` command that must succeed."""
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "rlvr.cli.main", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout


def run(
    site: Path, out: Path, arm: str, *, steps: int, seed: int, words: Sequence[str] = ()
) -> dict[str, Any]:
    """One run, and what `rlvr runs show --json` says of it. `words` are further options."""
    asked = ["--plugin", "formula", "--steps", str(steps), "--seed", str(seed), "--out", str(out)]
    rlvr(site, "run", *asked, "--json", *ARMS[arm], *words)
    shown: dict[str, Any] = json.loads(rlvr(site, "runs", "show", str(out), "--json"))
    return shown


def row(arm: str, seed: int, shown: dict[str, Any]) -> str:
    """A line of the table."""
    last, trust = shown["metrics"][-1], shown["trust"]
    alarm = "none" if trust["alarm_step"] is None else f"step {trust['alarm_step']}"
    return f"{arm:8} {seed:4}  {last['reward/pass']:11.1%}  {alarm:8}  {trust['sentence']}"


def main() -> None:
    """Do the runs and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        site = installed(Path(folder) / "site")
        out = args.out or Path(folder)
        print("run      seed  called right  alarm     second judge")
        for seed in range(1, args.seeds + 1):
            for arm in ARMS:
                shown = run(site, out / f"{arm}-{seed}", arm, steps=args.steps, seed=seed)
                print(row(arm, seed, shown), flush=True)


if __name__ == "__main__":
    main()
