"""`rlvr runs compare RUN RUN ...`: curves, their summaries, and the settings that differ."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from rlvr.cli.compare_report import paired_as_json, verdict
from rlvr.cli.options import add_json_flag
from rlvr.cli.output import number, print_json, table
from rlvr.errors import ConfigError, ExitCode
from rlvr.evaluation import compare_runs
from rlvr.evaluation.compare_runs import CURVES, Curve, Difference, Points, Summary
from rlvr.evaluation.plot import check_drawable, draw
from rlvr.heartbeat import say
from rlvr.records.owner import writing_to
from rlvr.records.read_runs import RunRecord, locate, read_run

SUMMARY = "several runs: reward, pass rate, KL, lengths, time, settings"
EXAMPLE = "rlvr runs compare runs/ONE runs/OTHER --out curves.svg"
HEADER = ("METRIC", "RUN", "STEPS", "LAST", "BEST", "AT STEP", "LAST QUARTER")

Curves = list[tuple[Curve, dict[str, Points]]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="two or more directories, or names below runs/"
    )
    parser.add_argument("--out", metavar="FILE", help="also draw the curves: .png or .svg")
    add_json_flag(parser)


def main(args: argparse.Namespace) -> int:
    """
    Print the comparison, and draw it with `--out`.

    Raises:
        UnknownNameError: There is no such run.
        ConfigError: Fewer than two runs, nothing to draw, or a picture that cannot be written.
        PrerequisiteError: matplotlib is not installed.
    """
    paths = [locate(name) for name in args.runs]
    if len({path.resolve() for path in paths}) < max(len(paths), 2):
        raise ConfigError(
            "runs were to be compared.",
            f"found: {len(paths)} named, {len({p.resolve() for p in paths})} different",
            "name two or more different runs; list them with: rlvr runs list",
        )
    if args.out:
        check_drawable(Path(args.out))
    runs = dict(zip(_names(paths), [read_run(path) for path in paths], strict=True))
    curves = curves_of(runs)
    there = [(curve, found) for curve, found in curves if any(found.values())]
    if args.out:
        check_points(args.out, there)
    print_json(_as_json(runs, curves)) if args.json else print(_as_text(runs, curves, there))
    if args.out:
        draw_to(args.out, curves)
    return ExitCode.DONE


def curves_of(runs: Mapping[str, RunRecord]) -> Curves:
    """The points of each curve, by the run's name; without any where a run lacks the metric."""
    return [
        (curve, {name: compare_runs.points(run, curve.metric) for name, run in runs.items()})
        for curve in CURVES
    ]


def check_points(out: str, curves: Curves) -> None:
    """
    Refuse a picture without a point.

    Raises:
        ConfigError: No run has a finite number of these metrics.
    """
    if not any(found for _, by_run in curves for found in by_run.values()):
        raise ConfigError(
            f"curves were to be drawn to {out}.",
            "found: no finite number in the metrics that are drawn",
            "if a run has just begun, wait for the first step",
        )


def draw_to(out: str, curves: Curves) -> None:
    """Draw the curves that have points, and say where."""
    with writing_to(out):
        draw(Path(out), [(curve, found) for curve, found in curves if any(found.values())])
    say(f"drawn: {out}")


def _names(paths: Sequence[Path]) -> list[str]:
    """The folders' names; whole paths where two are the same."""
    names = [path.resolve().name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def _as_text(runs: dict[str, RunRecord], curves: Curves, there: Curves) -> str:
    parts = ["\n".join(_state(name, run) for name, run in runs.items())]
    rows = [
        _row(curve, name, compare_runs.summary(found, curve.better))
        for curve, by_run in there
        for name, found in by_run.items()
    ]
    parts.append(table(HEADER, rows) if rows else "no metrics in any of these runs yet")
    if missing := [curve.metric for curve, found in curves if not any(found.values())]:
        parts[-1] += f"\nin none of these runs: {', '.join(missing)}"
    names = list(runs)
    for name in names[1:]:
        found = compare_runs.last_evaluations(runs[name], runs[names[0]])
        if found is not None:
            parts.append(f"last evaluations, {name} against {names[0]}:\n{verdict(found)}")
    settings = compare_runs.config_differences(list(runs.values()))
    others = compare_runs.identity_differences(list(runs.values()))
    parts.append(_differences("options", names, settings))
    parts.append(_differences("data, versions", names, others))
    return "\n\n".join(parts)


def _state(name: str, run: RunRecord) -> str:
    done = run.metrics[-1].get("step", 0) if run.metrics else 0
    total = compare_runs.points(run, "time/total_s")
    took = f", {total[-1][1]:.0f} s" if total else ""
    status = run.record.get("status", "status not known")
    return f"{name}: {status}, step {done} of {run.record.get('steps', '?')}{took}"


def _row(curve: Curve, name: str, found: Summary | None) -> tuple[object, ...]:
    if found is None:
        return (curve.metric, name, 0, "-", "-", "-", "-")
    numbers = [number(found.last), number(found.best), number(found.best_step), number(found.late)]
    return (curve.metric, name, found.steps, *numbers)


def _differences(what: str, names: Sequence[str], found: Sequence[Difference]) -> str:
    if not found:
        return f"{what}: no difference"
    rows = [
        (d.key, *(_value(v, o) for v, o in zip(d.values, d.origins, strict=True))) for d in found
    ]
    return f"{what} that differ\n" + table(("KEY", *names), rows)


def _value(value: object, origin: str) -> str:
    if value is None and not origin:
        return "(none)"
    text = "(empty)" if value in ("", []) else str(value)
    return f"{text} ({origin})" if origin else text


def _as_json(runs: dict[str, RunRecord], curves: Curves) -> dict[str, Any]:
    first, *others = runs
    return {
        "runs": {
            name: {
                "path": run.path,
                "status": run.record.get("status"),
                "steps": run.record.get("steps"),
                "curves": {curve.metric: _curve(found[name], curve) for curve, found in curves},
            }
            for name, run in runs.items()
        },
        "last_evaluations": {
            name: None if found is None else paired_as_json(found)
            for name in others
            for found in [compare_runs.last_evaluations(runs[name], runs[first])]
        },
        "options": [
            _difference(d, runs) for d in compare_runs.config_differences([*runs.values()])
        ],
        "others": [
            _difference(d, runs) for d in compare_runs.identity_differences([*runs.values()])
        ],
    }


def _curve(found: Points, curve: Curve) -> dict[str, Any] | None:
    summary = compare_runs.summary(found, curve.better)
    return (
        None if summary is None else {**attrs.asdict(summary), "points": [list(p) for p in found]}
    )


def _difference(found: Difference, runs: dict[str, RunRecord]) -> dict[str, Any]:
    return {
        "key": found.key,
        "values": dict(zip(runs, found.values, strict=True)),
        "origins": dict(zip(runs, found.origins, strict=True)),
    }
