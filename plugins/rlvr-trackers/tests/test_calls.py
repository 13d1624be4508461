"""What a library finds while it is called: nobody to ask, streams apart, no reports."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tracker_fixture import Lines, run_in, told

from rlvr import BuildContext
from rlvr_trackers.wandb import Wandb, WandbOptions


def test_a_tracker_can_ask_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question finds no terminal and no answer: it does not wait, nor hold the process's end."""
    asked, typed = [], io.StringIO("yes")
    monkeypatch.setattr(sys, "stdin", typed)
    tracker = Lines(start=lambda: asked.extend([sys.stdin.isatty(), sys.stdin.read()]))

    tracker.run_started(run=run_in(tmp_path))

    assert asked == [False, ""]
    assert sys.stdin is typed


def test_trackers_of_runs_in_threads_give_the_streams_back(tmp_path: Path) -> None:
    """The call that began first ends first: the other one's "before" is no stream of ours."""
    before, begun = (sys.stdin, sys.stdout), threading.Event()

    def first() -> None:
        begun.set()
        time.sleep(0.1)

    trackers = Lines(start=first), Lines(start=lambda: time.sleep(0.2))
    threads = [
        threading.Thread(target=tracker.run_started, args=(run_in(tmp_path),))
        for tracker in trackers
    ]
    threads[0].start()
    assert begun.wait(10)
    threads[1].start()
    for thread in threads:
        thread.join(10)

    assert (sys.stdin, sys.stdout) == before


def test_nothing_a_tracker_prints_stands_on_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results of the command line stand there."""
    told(Lines(), tmp_path, range(1, 2))

    said = capsys.readouterr()
    assert said.out == ""
    assert "chatter" in said.err


@pytest.mark.parametrize(("before", "seen"), [(None, "false"), ("true", "true")])
def test_a_library_reports_nothing_to_its_makers_unless_a_person_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None, seen: str
) -> None:
    """Its variable is set while it starts, and left as it was."""
    monkeypatch.delenv("LINES_REPORTS", raising=False)
    if before is not None:
        monkeypatch.setenv("LINES_REPORTS", before)
    found: list[str | None] = []
    tracker = Lines(start=lambda: found.append(os.environ.get("LINES_REPORTS")))
    tracker.reports = ("LINES_REPORTS", "false")  # type: ignore[misc]  # a class's, of one here

    tracker.run_started(run=run_in(tmp_path))

    assert found == [seen]
    assert os.environ.get("LINES_REPORTS") == before


def test_mlflow_reports_nothing_to_its_makers() -> None:
    """Importing it would start a thread that does, and set a variable; here it does neither."""
    pytest.importorskip("mlflow", reason="MLflow is not installed")
    code = """
import os, threading
before = dict(os.environ)
from rlvr import BuildContext
from rlvr_trackers.mlflow import MLflow, MLflowOptions
MLflow(MLflowOptions(), BuildContext())
from mlflow.telemetry import get_telemetry_client
print(get_telemetry_client(), os.environ == before)
"""
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}  # no CI's
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip

    assert done.stdout.splitlines()[-1:] == ["None True"], done.stderr


def test_wandb_reports_nothing_to_its_makers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its service, which would, is started by what `start` calls."""
    env = pytest.importorskip("wandb.env", reason="wandb is not installed")
    monkeypatch.delenv("WANDB_ERROR_REPORTING", raising=False)
    tracker, seen = Wandb(WandbOptions(mode="offline"), BuildContext()), list[bool]()
    monkeypatch.setattr(tracker, "start", lambda *_: seen.append(env.error_reporting_enabled()))

    tracker.run_started(run=run_in(tmp_path))

    assert seen == [False]
    assert env.error_reporting_enabled()
