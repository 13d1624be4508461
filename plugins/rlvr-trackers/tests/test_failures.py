"""What a failure costs: a warning and the entries after it; a missing library, the start."""

from __future__ import annotations

import errno
import gc
import resource
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import structlog
from tracker_fixture import Lines, kept_before, raising, run_in, stopped, told

from rlvr import BuildContext, PrerequisiteError
from rlvr_trackers.mlflow import MLflow, MLflowOptions
from rlvr_trackers.tensorboard import TensorBoard, TensorBoardOptions


@pytest.mark.parametrize("at", ["start", "log", "table", "finish"])
@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), SystemExit(1), KeyboardInterrupt()],
    ids=["disk", "exit", "interrupt"],
)
def test_a_failure_is_warned_of_once_and_then_there_is_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], at: str, error: BaseException
) -> None:
    """Nothing is logged after it, the tracker's run is closed; the warning says what to do."""
    tracker = Lines(**{at: raising(error)})
    told(tracker, tmp_path, range(1, 4))

    said = capsys.readouterr().err
    assert said.count("tracker_stopped") == 1
    assert type(error).__name__ in said
    assert "look at the lines" in said
    names = [line[0] for line in tracker.lines]
    assert names[names.index(at) :] == list(dict.fromkeys([at, "finish"]))
    assert tracker.lines[-1] == ("finish", "done")


@pytest.mark.parametrize("at", ["start", "log", "finish"])
def test_a_call_that_hangs_is_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], at: str
) -> None:
    """After the limit, once; the thread that hangs is a daemon, so that the process can end."""
    free = threading.Event()
    tracker = Lines(0.3, **{at: lambda: free.wait(60) and None})
    began = time.monotonic()
    told(tracker, tmp_path, range(1, 4))
    took = time.monotonic() - began
    hanging = [thread for thread in threading.enumerate() if thread.name == "tracker-lines"]
    daemons = [thread.daemon for thread in hanging]
    free.set()
    for thread in hanging:
        thread.join()

    assert daemons == [True]
    assert tracker.lines[-1][0] == at, "nothing waits behind a call that hangs"
    assert took < 20
    assert capsys.readouterr().err.count("no answer in 0.3 s") == 1


def test_what_failed_is_not_counted_as_logged(tmp_path: Path) -> None:
    """After a resume the step that failed is logged."""
    told(Lines(log=raising(OSError("full"))), tmp_path, range(1, 2))
    again = Lines()
    told(again, tmp_path, range(1, 2))

    assert ("log", 1, "reward/mean") in again.lines


def told_after(text: str, tmp_path: Path) -> list[Any]:
    """What is told a tracker whose file of the id holds this text."""
    kept_before(tmp_path, "lines", text)
    tracker = Lines()
    told(tracker, tmp_path, range(1, 3))
    return tracker.lines


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "null", "[" * 100_000, '{"id": 5}', '{"id": null}'),
        *('{"last": []}', '{"last": null}', '{"last": {"metrics": "x"}}'),
        *('{"last": {"metrics": null}}', '{"places": []}', '{"places": {"": 5}}'),
    ],
    ids=lambda text: text[:30],
)
def test_a_damaged_file_of_the_id_stops_the_tracker_alone(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named once, with how to begin a new tracker run."""
    assert told_after(text, tmp_path) == []
    said = capsys.readouterr().err
    assert said.count("tracker_stopped") == 1
    assert "lines.json" in said


def test_a_file_of_the_id_without_steps_is_read(tmp_path: Path) -> None:
    """As a person may write one, to go on in a run of the tracker."""
    lines = told_after('{"id": "mine"}', tmp_path)
    assert lines[0] == ("start", "mine")
    assert ("log", 1, "reward/mean") in lines


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    """An error of the system says what is wrong with which file."""
    (tmp_path / "trackers").write_text("")

    with structlog.testing.capture_logs() as lines:
        Lines().run_started(run=run_in(tmp_path))

    assert f"FileExistsError: [Errno 17] File exists: '{tmp_path}/trackers'" in lines[0]["found"]


def test_a_missing_library_is_an_error_at_the_start() -> None:
    """With the extra to install."""

    class Missing(Lines):
        name = "trackio"
        module = "no_such_tracker"

    with pytest.raises(PrerequisiteError) as caught:
        Missing()
    assert "no_such_tracker" in str(caught.value)
    assert "rlvr-trackers" in str(caught.value)
    assert "[trackio]" in str(caught.value)


@pytest.mark.parametrize("uri", ["file:store", "./store", ""])
def test_a_folder_that_mlflow_refuses(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning says which place it takes, and which variable allows a folder."""
    pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "false")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlruns" / "0").mkdir(parents=True)  # MLflow's default then
    (tmp_path / "mlruns" / "0" / "meta.yaml").touch()

    line = stopped(MLflow(MLflowOptions(uri=uri), BuildContext()), tmp_path, range(1, 3))

    assert line["at"] == "start"
    assert "mlflow.uri=sqlite:///FILE" in line["do"]
    assert "MLFLOW_ALLOW_FILE_STORE=true" in line["do"]


def test_a_full_disk_under_tensorboard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The kernel refuses to let the event file grow: one warning, no traceback of a thread."""
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    tracker = TensorBoard(TensorBoardOptions(), BuildContext())
    run = run_in(tmp_path)
    tracker.run_started(run=run)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    many = {f"metric/{number}": 1.0 for number in range(2000)}
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        tracker.step_finished(run=run, step=1, metrics=many)
        tracker.step_finished(run=run, step=2, metrics=many)
        tracker.run_finished(run=run, outcome="done")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    said = capsys.readouterr().err
    assert said.count("tracker_stopped") == 1
    assert "File too large" in said
    assert "Traceback" not in said
    del tracker
    gc.collect()  # a file that is still open is a warning, which is an error
