"""`rlvr runs list [DIR]` and `rlvr runs show RUN`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rlvr.cli.options import add_json_flag
from rlvr.cli.output import print_json, table
from rlvr.cli.parser import examples
from rlvr.errors import ConfigError, ExitCode, UnknownNameError, explain
from rlvr.nearest import did_you_mean

SUMMARY = "List runs, or show one."
DEFAULT_DIRECTORY = "runs"
_SUMMARY_KEYS = ("id", "status", "plugin", "algo", "model", "seed", "created")
_RECORD_KEYS = (*_SUMMARY_KEYS, "steps", "dataset_hash")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add `list` and `show`."""
    parser.epilog = examples(
        "rlvr runs list",
        "rlvr runs list /data/runs --json",
        "rlvr runs show runs/NAME",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|show")
    listing = verbs.add_parser("list", help="all runs of a folder, oldest first")
    listing.add_argument("directory", nargs="?", default=DEFAULT_DIRECTORY, metavar="DIR")
    add_json_flag(listing)
    show = verbs.add_parser("show", help="one run: identity, evaluations, last metrics")
    show.add_argument("run", metavar="RUN", help="its directory, or its name below runs/")
    add_json_flag(show)


def main(args: argparse.Namespace) -> int:
    """
    Run the verb.

    Raises:
        UnknownNameError: There is no such folder or run.
        ConfigError: The run's `run.json` cannot be read.
    """
    return _list(args) if args.verb == "list" else _show(args)


def _list(args: argparse.Namespace) -> int:
    folder = Path(args.directory)
    if not folder.is_dir() and args.directory != DEFAULT_DIRECTORY:
        raise UnknownNameError(explain(f"runs of {folder} were asked for", "found: no such folder"))
    found = []
    for path in sorted(folder.glob("*/run.json")):
        try:
            found.append(_summary(path.parent))
        except ConfigError as error:  # one damaged run hides no other
            print(f"rlvr: {error}", file=sys.stderr)
            found.append({"id": path.parent.name, "status": "unreadable", "path": path.parent})
    found.sort(key=lambda run: str(run.get("created", "")))
    if args.json:
        print_json(found)
    elif not found:
        print(f"no runs in {folder}", file=sys.stderr)
    else:
        header = ("RUN", "STATUS", "PLUGIN", "ALGO", "STEPS", "SEED", "REWARD", "PASS@1", "CREATED")
        print(table(header, [_cells(run) for run in found]))
    return ExitCode.DONE


def _show(args: argparse.Namespace) -> int:
    path = _locate(args.run)
    record = _read_record(path)
    metrics = _read_lines(path / "metrics.jsonl")
    evaluations = _read_lines(path / "eval.jsonl")
    if args.json:
        print_json({**record, "path": path, "metrics": metrics, "evaluations": evaluations})
        return ExitCode.DONE
    print(f"run {record.get('id', path.name)} in {path}")
    for key in _RECORD_KEYS[1:]:
        if key in record:
            print(f"  {key}: {record[key]}")
    if evaluations:
        cells = [
            (e.get("step"), e.get("split"), _number(e.get("pass1")), _interval(e))
            for e in evaluations
        ]
        print("\n" + table(("STEP", "SPLIT", "PASS@1", "95 % INTERVAL"), cells))
    if metrics:
        last = metrics[-1]
        print(f"\nmetrics of step {last.get('step')}")
        print(table(("METRIC", "VALUE"), [(k, _number(v)) for k, v in sorted(last.items())]))
    return ExitCode.DONE


def _locate(name: str) -> Path:
    for path in (Path(name), Path(DEFAULT_DIRECTORY) / name):
        if (path / "run.json").is_file():
            return path
    known = [path.parent.name for path in Path(DEFAULT_DIRECTORY).glob("*/run.json")]
    raise UnknownNameError(
        explain(
            f"no run {name!r}: no run.json there.", did_you_mean(name, known), "try: rlvr runs list"
        )
    )


def _summary(path: Path) -> dict[str, Any]:
    record = _read_record(path)
    metrics = _read_lines(path / "metrics.jsonl")
    evaluations = _read_lines(path / "eval.jsonl")
    last = metrics[-1] if metrics else {}
    return {
        **{key: record.get(key) for key in _SUMMARY_KEYS},
        "path": path,
        "steps": record.get("steps"),
        "step": last.get("step", 0),
        "reward": last.get("reward/mean"),
        "pass1": evaluations[-1].get("pass1") if evaluations else None,
    }


def _cells(run: dict[str, Any]) -> tuple[object, ...]:
    steps = f"{run.get('step', '?')}/{run.get('steps', '?')}"
    named = [run.get(key) or "-" for key in ("id", "status", "plugin", "algo")]
    numbers = [_number(run.get("reward")), _number(run.get("pass1"))]
    return (*named, steps, run.get("seed", "-"), *numbers, run.get("created") or "-")


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads((path / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            explain(f"{path / 'run.json'} cannot be read", f"found: {error}")
        ) from error
    if not isinstance(record, dict):
        raise ConfigError(f"{path / 'run.json'} holds no object")
    return record


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file; unreadable lines are named on standard error."""
    if not path.is_file():
        return []
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict):
            records.append(record)
        else:
            print(f"rlvr: {path}: line {number} is no JSON object", file=sys.stderr)
    return records


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else str(value)


def _interval(evaluation: dict[str, Any]) -> str:
    return f"{_number(evaluation.get('low'))} .. {_number(evaluation.get('high'))}"
