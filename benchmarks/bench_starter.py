"""
The starter's learning curves: `rlvr run --plugin cvdp --algo grpo` for several seeds, one by one.

    python benchmarks/bench_starter.py [--seeds 1 2 3] [--out DIR] [--json]

Prints held-out pass@1 before and after with 95 % intervals, the paired gain, and the time of each
run; exits 1 when a seed gains less than 20 points or its interval reaches zero.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LEAST_GAIN = 0.20


def one(seed: int, out: Path, words: list[str]) -> dict[str, object]:
    command = [sys.executable, "-m", "rlvr.cli.main", "run", "--plugin", "cvdp", "--algo", "grpo"]
    command += ["--seed", str(seed), "--out", str(out), "--json", "verify.store=off", *words]
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    summary = json.loads(done.stdout)
    return {
        "seed": seed,
        "before": summary["evaluations"][0],
        "after": summary["evaluations"][-1],
        "gain": summary["gain"],
        "minutes": (time.monotonic() - begun) / 60,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", type=Path, help="keep the run directories here")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    args = parser.parse_intermixed_args()
    root = args.out or Path(tempfile.mkdtemp(prefix="rlvr-starter-"))
    results = []
    for seed in args.seeds:
        result = one(seed, root / f"seed-{seed}", args.overrides)
        results.append(result)
        before, after, gain = result["before"], result["after"], result["gain"]
        if not args.json:
            print(
                f"seed {seed}: pass@1 {before['pass1']:.1%} [{before['low']:.1%}, "
                f"{before['high']:.1%}] -> {after['pass1']:.1%} [{after['low']:.1%}, "
                f"{after['high']:.1%}], gain {gain['pass1'] * 100:+.1f} points "
                f"[{gain['low'] * 100:+.1f}, {gain['high'] * 100:+.1f}], "
                f"{result['minutes']:.1f} min",
                flush=True,
            )
    if args.json:
        print(json.dumps(results))
    gains = [r["gain"] for r in results]
    return 0 if all(g["pass1"] >= LEAST_GAIN and g["low"] > 0 for g in gains) else 1


if __name__ == "__main__":
    sys.exit(main())
