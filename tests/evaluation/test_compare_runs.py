"""Runs side by side: curves and differences on records made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlvr.evaluation.compare_runs import (
    PASS1,
    STEP_S,
    config_differences,
    identity_differences,
    last_evaluations,
    points,
    summary,
)
from rlvr.records.read_runs import RunRecord


def run(
    metrics: list[dict[str, Any]] | None = None,
    evaluations: list[dict[str, Any]] | None = None,
    **record: Any,
) -> RunRecord:
    return RunRecord(
        path=Path("r"), record=record, metrics=metrics or [], evaluations=evaluations or []
    )


def test_points_are_in_order_and_finite() -> None:
    """A step written twice counts once, NaN and texts never; a metric that is missing is ()."""
    found = run(
        [
            {"step": 2, "x": 0.5},
            {"step": 1, "x": 0.25},
            {"step": 2, "x": 0.75},
            {"step": 3, "x": float("nan")},
            {"step": 4, "x": "high"},
            {"x": 1.0},
        ]
    )

    assert points(found, "x") == ((1, 0.25), (2, 0.75))
    assert points(found, "y") == ()


def test_time_of_a_step_is_the_growth_of_the_total() -> None:
    """2 s, 3 s, then a gap whose two steps nobody can tell apart, then 1 s."""
    totals = [(1, 2.0), (2, 5.0), (4, 9.0), (5, 10.0)]
    found = run([{"step": step, "time/total_s": total} for step, total in totals])

    assert points(found, STEP_S) == ((1, 2.0), (2, 3.0), (5, 1.0))


def test_summary_worked_by_hand() -> None:
    """Last, best with its first step, and the mean of the last two of five (a quarter, up)."""
    curve = ((1, 0.0), (2, 0.9), (3, 0.9), (4, 0.5), (5, 0.7))

    found = summary(curve, "high")
    assert found is not None
    assert (found.steps, found.last, found.best, found.best_step) == (5, 0.7, 0.9, 2)
    assert found.late == pytest.approx(0.6)
    lowest = summary(curve, "low")
    assert lowest is not None
    assert (lowest.best, lowest.best_step) == (0.0, 1)
    neither = summary(curve, "")
    assert neither is not None
    assert (neither.best, neither.best_step) == (None, None)
    assert summary((), "high") is None


def test_options_that_are_gone_are_no_difference() -> None:
    """A run of an earlier version names its plugin where one of today names its task."""
    old = run(config={"run.plugin": "toy", "run.task": "", "verify.alarm": 0.2})

    assert config_differences([old, run(config={"run.task": "toy"})]) == []


def test_options_that_differ_with_their_origins() -> None:
    """Equal ones and defaults of a part more are left out; one that is missing is a None."""
    found = config_differences(
        [
            run(
                config={"train.lr": 0.1, "train.new": "", "run.seed": 1, "a.set": 3, "a.not": 4},
                origin={"train.lr": "command line", "a.set": "run.toml"}
                | dict.fromkeys(("train.new", "run.seed", "a.not"), "default"),
            ),
            run(config={"train.lr": 0.2, "run.seed": 1}, origin={}),
        ]
    )

    assert [(d.key, d.values, d.origins) for d in found] == [
        ("a.set", (3, None), ("run.toml", "")),
        ("train.lr", (0.1, 0.2), ("command line", "")),
        ("train.new", ("", None), ("default", "")),
    ]


def test_data_and_versions_that_differ() -> None:
    """A distribution that one run lacked differs too; a damaged record crashes nothing."""
    found = identity_differences(
        [
            run(dataset_hash="a", versions={"rlvr": "1", "x": "2"}, seed=1),
            run(dataset_hash="b", versions={"rlvr": "1"}, seed=1),
            run(dataset_hash="b", versions="odd", seed=1, config=None),
        ]
    )

    assert {d.key: d.values for d in found} == {
        "dataset_hash": ("a", "b", "b"),
        "version of rlvr": ("1", "1", None),
        "version of x": ("2", None, None),
    }


def test_last_evaluations_are_paired_by_problem() -> None:
    """The last line of each counts, and only problems of both; none in common is None."""
    this = run(
        evaluations=[
            {"step": 0, "pass1": 0.0, "scores": {"a": [0.0]}},
            {"step": 9, "pass1": 0.75, "scores": {"a": [1.0, 1.0], "b": [1.0, 0.0], "z": [1.0]}},
        ]
    )
    against = run(evaluations=[{"step": 9, "scores": {"a": [0.0, 1.0], "b": [0.5, 0.0], "c": []}}])

    found = last_evaluations(this, against)

    assert found is not None
    assert (found.problems, found.this, found.against) == (2, 0.75, 0.25)
    assert last_evaluations(this, run()) is None
    assert points(this, PASS1) == ((0, 0.0), (9, 0.75))
