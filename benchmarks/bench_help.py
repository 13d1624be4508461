"""
How long `rlvr --help` takes: the best of several fresh processes, in seconds.

    python benchmarks/bench_help.py [--runs 5] [--json]

Beside it stands an empty Python process, which is the least that any command can take. The promise
is 0.3 s (exit 1 past it).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

LIMIT_S = 0.3


def best_of(runs: int, *command: str) -> float:
    """Seconds of the fastest of `runs` processes."""
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run([sys.executable, *command], capture_output=True, check=True)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description="Time of rlvr --help")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    empty_s = best_of(args.runs, "-c", "pass")
    help_s = best_of(args.runs, "-m", "rlvr.cli.main", "--help")
    if args.json:
        print(json.dumps({"help_s": help_s, "empty_process_s": empty_s, "limit_s": LIMIT_S}))
    else:
        print(f"rlvr --help {help_s:.3f} s, an empty Python process {empty_s:.3f} s")
    return int(help_s >= LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
