"""`rlvr runs show RUN`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rlvr.cli.options import add_json_flag
from rlvr.cli.output import number, print_json, table
from rlvr.cli.runs_compare import check_points, curves_of, draw_to
from rlvr.errors import ExitCode
from rlvr.evaluation.plot import check_drawable
from rlvr.install import rlvr_command
from rlvr.records.read_runs import STOPPED, RunRecord, locate, read_run
from rlvr.training.best_checkpoint import best, best_step, recorded_reports, sentence
from rlvr.verification.trust import Trust, by_answer

SUMMARY = "one run: identity, evaluations, last metrics"
EXAMPLE = "rlvr runs show runs/NAME --out curves.svg"
_ANSWER = ("step", "id", "trajectory", "why")
KEYS = ("status", "plugin", "algo", "model", "seed", "created", "steps", "dataset_hash")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("run", metavar="RUN", help="its directory, or its name below runs/")
    parser.add_argument("--out", metavar="FILE", help="also draw its curves: .png or .svg")
    add_json_flag(parser)


def main(args: argparse.Namespace) -> int:
    """
    Print the run; everything it wrote but trajectories with `--json`. Draw it with `--out`.

    Raises:
        UnknownNameError: There is no such run.
        ConfigError: Its `run.json` cannot be read, or the picture cannot be drawn there.
        PrerequisiteError: matplotlib is not installed.
    """
    run = read_run(locate(args.run))
    curves = curves_of({run.id: run})
    if args.out:
        check_drawable(Path(args.out))
        check_points(args.out, curves)
    reports = recorded_reports(run.evaluations)
    step = best_step(reports)
    found = None if step is None else best(step, reports[step], run.path)
    if args.json:
        told = {"metrics": run.metrics, "evaluations": run.evaluations, "best": found}
        if run.opinions:
            told["trust"] = _trust(run.opinions)
        print_json({**run.record, "path": run.path, **told})
    else:
        _print_text(run, found)
    if args.out:
        draw_to(args.out, curves)
    return ExitCode.DONE


def _print_text(run: RunRecord, found: dict[str, Any] | None) -> None:
    print(f"run {run.id} in {run.path}")
    for key in KEYS:
        if key in run.record:
            print(f"  {key}: {run.record[key]}")
    if run.record.get("status") == STOPPED:
        command = rlvr_command("run", "--resume", str(run.path))
        print(f"  it was killed, or its machine went down; go on with: {command}")
    if found is not None:
        print(f"  best: {sentence(found)}")
    judged = [e for e in run.evaluations if not e.get("measures")]
    if judged:
        cells = [
            (e.get("step"), e.get("split"), number(e.get("pass1")), _interval(e)) for e in judged
        ]
        print("\n" + table(("STEP", "SPLIT", "PASS@1", "95 % INTERVAL"), cells))
    appraised = [e for e in run.evaluations if e.get("measures")]
    if appraised:
        names = sorted({name for e in appraised for name in e["measures"]})
        rows = [
            (e.get("step"), e.get("split"), *(number(e["measures"].get(n)) for n in names))
            for e in appraised
        ]
        print("\n" + table(("STEP", "SPLIT", *names), rows))
    if run.opinions:
        _print_trust(_trust(run.opinions))
    if run.metrics:
        last = run.metrics[-1]
        print(f"\nmetrics of step {last.get('step')}")
        print(table(("METRIC", "VALUE"), [(k, number(v)) for k, v in sorted(last.items())]))


def _trust(opinions: list[dict[str, Any]]) -> dict[str, Any]:
    """The count of the second opinions, the step of the alarm, and every false accept."""
    trust, last = Trust.of(opinions), by_answer(opinions).values()
    alarms = [o.get("step") for o in opinions if o.get("opinion") == "alarm"]
    return {
        **trust.metrics(),
        "sentence": trust.sentence(),
        "alarm_step": alarms[0] if alarms else None,
        "false_accepts": [o for o in last if o["opinion"] == "rejected"],
        "failures": [o for o in last if o["opinion"] == "failed"],
    }


def _print_trust(trust: dict[str, Any]) -> None:
    print(f"\nsecond opinions: {trust['sentence']}")
    if trust["alarm_step"] is not None:
        print(f"ALARM at step {trust['alarm_step']}: the reward pays for answers that are wrong")
    if rows := _rows(trust["false_accepts"]):
        print(table(("STEP", "FALSE ACCEPT", "TRAJECTORY", "WHY"), rows))
    if rows := _rows(trust["failures"]):
        print(table(("STEP", "COULD NOT RUN", "TRAJECTORY", "WHY"), rows))


def _rows(opinions: list[dict[str, Any]]) -> list[list[str]]:
    return [[" ".join(str(o.get(key, "")).split())[:120] for key in _ANSWER] for o in opinions]


def _interval(evaluation: dict[str, Any]) -> str:
    return f"{number(evaluation.get('low'))} .. {number(evaluation.get('high'))}"
