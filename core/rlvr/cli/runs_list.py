"""`rlvr runs list [DIR]`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rlvr.cli.options import add_json_flag
from rlvr.cli.output import number, print_json, table
from rlvr.errors import ConfigError, ExitCode, UnknownNameError
from rlvr.heartbeat import say
from rlvr.records.read_runs import DEFAULT_DIRECTORY, read_run

SUMMARY = "all runs of a folder, oldest first"
EXAMPLE = "rlvr runs list"
HEADER = ("RUN", "STATUS", "PLUGIN", "ALGO", "STEPS", "SEED", "REWARD", "PASS@1", "CREATED")
KEYS = ("id", "status", "plugin", "algo", "model", "seed", "created")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("directory", nargs="?", default=DEFAULT_DIRECTORY, metavar="DIR")
    add_json_flag(parser)


def main(args: argparse.Namespace) -> int:
    """
    Print a line a run.

    Raises:
        UnknownNameError: There is no such folder.
    """
    folder = Path(args.directory)
    if not folder.is_dir() and args.directory != DEFAULT_DIRECTORY:
        raise UnknownNameError(f"runs of {folder} were asked for", "found: no such folder")
    found = []
    for path in sorted(folder.glob("*/run.json")):
        try:
            found.append(_summary(path.parent))
        except ConfigError as error:  # one damaged run hides no other
            say(f"rlvr: {error}")
            found.append({"id": path.parent.name, "status": "unreadable", "path": path.parent})
    found.sort(key=lambda run: str(run.get("created", "")))
    if args.json:
        print_json(found)
    elif not found:
        say(f"no runs in {folder.absolute()}; those of another folder: rlvr runs list DIR")
    else:
        print(table(HEADER, [_cells(run) for run in found]))
    return ExitCode.DONE


def _summary(path: Path) -> dict[str, Any]:
    run = read_run(path)
    last = run.metrics[-1] if run.metrics else {}
    return {
        **{key: run.record.get(key) for key in KEYS},
        "path": path,
        "steps": run.record.get("steps"),
        "step": last.get("step", 0),
        "reward": last.get("reward/mean"),
        "pass1": run.evaluations[-1].get("pass1") if run.evaluations else None,
    }


def _cells(run: dict[str, Any]) -> tuple[object, ...]:
    steps = f"{run.get('step', '?')}/{run.get('steps', '?')}"
    named = [run.get(key) or "-" for key in ("id", "status", "plugin", "algo")]
    numbers = [number(run.get("reward")), number(run.get("pass1"))]
    return (*named, steps, run.get("seed", "-"), *numbers, run.get("created") or "-")
