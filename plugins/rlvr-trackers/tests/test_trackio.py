"""What is only trackio's: where it writes or sends, and a folder named once in a process."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from tracker_fixture import kept_before, record, stopped, without_library

from rlvr import BuildContext
from rlvr_trackers.entries import HIDDEN
from rlvr_trackers.trackio import Trackio, TrackioOptions


def test_a_damaged_file_of_trackio_refuses_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read before the run's first start, which tells of it."""
    monkeypatch.setenv("TRACKIO_DIR", "logs")
    kept_before(tmp_path, "trackio", "[" * 100_000)

    without_library(Trackio, TrackioOptions(), tmp_path)

    assert os.environ["TRACKIO_DIR"] == "logs"


def test_what_the_thread_of_trackio_could_not_write_stops_it(tmp_path: Path) -> None:
    """A disk that is full later: trackio warns in its own words alone, and goes on."""
    tracker = without_library(Trackio, TrackioOptions())
    failed: set[str] = set()
    run = SimpleNamespace(
        log=lambda *_, **__: failed.add("write-logs-to-sqlite"),
        finish=lambda: None,
        _warned_failures=failed,
    )
    tracker.library = SimpleNamespace(
        init=lambda *_, **__: run, utils=SimpleNamespace(TRACKIO_DIR=tmp_path)
    )
    line = stopped(tracker, tmp_path, range(2, 4))

    assert line["at"] == "metrics"
    assert "trackio could not write" in line["found"]


@pytest.mark.parametrize(
    ("options", "variable", "place"),
    [
        ({}, ("TRACKIO_SERVER_URL", "http://h"), "http://h"),
        ({"url": "http://h"}, ("TRACKIO_SPACE_ID", "me/s"), "me/s"),
        ({"url": "http://h"}, ("TRACKIO_SERVER_URL", "http://other"), "http://h"),
        ({"project": "a b"}, ("TRACKIO_DIR", ""), "trackio show --project 'a b'"),
    ],
)
def test_a_run_of_trackio_is_said_to_be_where_trackio_sends_it(
    options: dict[str, str],
    variable: tuple[str, str],
    place: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the option or its variable; a Space is preferred to a server."""
    for name in ("TRACKIO_DIR", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(*variable)
    tracker = without_library(Trackio, TrackioOptions(**options))
    tracker._name = "r1-abc"

    assert tracker.place() == f"{place}  # run r1-abc"


def test_what_a_server_of_trackio_did_not_take_is_told(
    tmp_path: Path, trackio_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trackio keeps it here: the run is not said to be there. It prints the server's address."""
    from trackio.sqlite_storage import SQLiteStorage

    url = "http://me:SECRET@127.0.0.1:9/?write_token=SECRET"
    tracker = Trackio(TrackioOptions(url=url), BuildContext())

    line = stopped(tracker, tmp_path, range(1, 2))

    assert line["at"] == "finish"
    assert f"keeps the rest in {trackio_folder}" in line["found"]
    assert SQLiteStorage.has_pending_data("rlvr")
    said = capsys.readouterr().err
    assert f"{HIDDEN}@127.0.0.1" in said
    assert "SECRET" not in said


def trackio_told(folder: str, step: int, *runs: tuple[Path, Path]) -> str:
    """
    What trackio and its callback say of a step of runs: a directory and a working folder each.

    In a process of its own, for TRACKIO_DIR is read once in it.
    """
    code = f"""
import os
from pathlib import Path
from rlvr import BuildContext, RunInfo
from rlvr_trackers.trackio import Trackio, TrackioOptions
for directory, cwd in {[(str(directory), str(cwd)) for directory, cwd in runs]!r}:
    os.chdir(cwd)
    run = RunInfo(id="r1", directory=Path(directory), plugin="toy", algo="grpo", model="m",
                  steps=9, seed=1)
    tracker = Trackio(TrackioOptions(), BuildContext(run_dir=run.directory))
    tracker.run_started(run=run)
    tracker.step_finished(run=run, step={step}, metrics={{"loss": 0.5}})
    tracker.run_finished(run=run, outcome="done")
"""
    env = {**os.environ, "TRACKIO_DIR": folder, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def trackio_steps(folder: Path) -> list[int]:
    with closing(sqlite3.connect(folder / "rlvr.db")) as base:
        return [s for (s,) in base.execute("SELECT step FROM metrics ORDER BY id").fetchall()]


def test_trackio_goes_on_in_a_run_that_was_killed_before_it_sent_anything(tmp_path: Path) -> None:
    """Trackio does not know the run then; it gets the name of before, and the lost step."""
    pytest.importorskip("trackio", reason="trackio is not installed")
    record(tmp_path, range(1, 2))
    last = {"metrics": 1, "evaluation": 1}
    kept = kept_before(tmp_path, "trackio", json.dumps({"id": "r1-abc", "last": last}))

    assert "tracker_stopped" not in trackio_told(str(tmp_path), 2, (tmp_path, tmp_path))

    found = json.loads(kept.read_text("utf-8"))
    assert (found["id"], found["last"]) == ("r1-abc", {"metrics": 2, "evaluation": 1})
    assert trackio_steps(tmp_path) == [1, 1, 2]


def test_a_relative_folder_of_trackio_is_that_of_the_first_start(tmp_path: Path) -> None:
    """A resume from another working folder goes on there, and says how to show it."""
    pytest.importorskip("trackio", reason="trackio is not installed")
    for step, cwd in enumerate(["one", "two"], start=1):
        (tmp_path / cwd).mkdir()
        said = trackio_told("logs", step, (tmp_path, tmp_path / cwd))
        assert "tracker_stopped" not in said
        assert f"TRACKIO_DIR={tmp_path}/one/logs trackio show --project rlvr" in said

    assert trackio_steps(tmp_path / "one" / "logs") == [1, 2]
    assert not any((tmp_path / "two").iterdir())


def test_trackio_goes_on_in_no_other_place_than_it_began(tmp_path: Path) -> None:
    """It reads TRACKIO_DIR once in a process: where it is another one by then, that is said."""
    pytest.importorskip("trackio", reason="trackio is not installed")
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    kept = {"id": "r1-abc", "last": {}, "places": {"logs": str(tmp_path / "before")}}
    kept_before(two, "trackio", json.dumps(kept))

    said = trackio_told("logs", 1, (one, one), (two, two))

    assert f"TRACKIO_DIR={one}/logs trackio show" in said
    assert "process of its own" in said
    assert trackio_steps(one / "logs") == [1]
    assert not (two / "logs").exists()
