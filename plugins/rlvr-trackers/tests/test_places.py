"""Where a run is logged: what is said of it, relative places and odd folders, files of MLflow."""

from __future__ import annotations

import importlib
import json
import os
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import MagicMock

import pytest
import structlog
from tracker_fixture import Lines, raising, run_in, stopped, told, without_library

from rlvr import BuildContext
from rlvr_trackers.mlflow import MLflow, MLflowOptions
from rlvr_trackers.tensorboard import TensorBoard, TensorBoardOptions
from rlvr_trackers.tracker import Tracker
from rlvr_trackers.trackio import Trackio, TrackioOptions
from rlvr_trackers.wandb import Wandb, WandbOptions


def test_a_run_says_where_it_was_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, without passwords, and not where it was not."""
    monkeypatch.setattr(Lines, "place", lambda self: "https://me:secret@host/runs")
    told(Lines(), tmp_path, range(1, 2))
    said = capsys.readouterr().err
    assert re.findall('"lines", "see": "https://<hidden>@host/runs", "event": "run_tracked"', said)
    assert "secret" not in said

    told(Lines(finish=raising(OSError("disk"))), tmp_path, range(1, 2))
    told(Lines(log=raising(OSError("disk"))), tmp_path / "x", range(1, 2))
    assert "run_tracked" not in capsys.readouterr().err


def test_runs_of_one_name_have_folders_of_their_own(tmp_path: Path) -> None:
    """Below `tensorboard.folder`; a resumed run goes on in that of before."""
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    options = TensorBoardOptions(folder=str(tmp_path / "all"))
    for place in ("one", "two", "one"):
        (tmp_path / place).mkdir(exist_ok=True)
        told(TensorBoard(options, BuildContext()), tmp_path / place, range(1, 2))

    kept = [json.loads((tmp_path / n / "trackers/tensorboard.json").read_text("utf-8"))["id"]
            for n in ("one", "two")]  # fmt: skip
    assert kept == [str(tmp_path / "all" / name) for name in ("r1", "r1-2")]
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["r1", "r1-2"]


@pytest.mark.slow
def test_wandb_keeps_to_the_mode_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clusters set it for all jobs; the option is the later word."""
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    tracker = Wandb(WandbOptions(), BuildContext())

    tracker.run_started(run=run_in(tmp_path))
    tracker.step_finished(run=run_in(tmp_path), step=1, metrics={"loss": 1.0})
    assert tracker.reached() in (-1, 1)  # of files, which wandb writes in time; its counter: 0
    tracker.run_finished(run=run_in(tmp_path), outcome="done")

    assert [*tmp_path.glob("trackers/wandb/offline-run-*/*.wandb")]
    assert json.loads((tmp_path / "trackers/wandb.json").read_text())["last"] == {"metrics": 1}


class _Client:
    """Of MLflow: notes where it was opened, and how many are at work on one new file."""

    opened: ClassVar[list[str]] = []
    at_work: ClassVar[set[int]] = set()
    most_at_work: ClassVar[int] = 0

    def __init__(self, tracking_uri: str) -> None:
        self.opened.append(tracking_uri)

    def get_experiment_by_name(self, _name: str) -> Any:
        self.at_work.add(threading.get_ident())
        type(self).most_at_work = max(self.most_at_work, len(self.at_work))
        time.sleep(0.05)
        self.at_work.remove(threading.get_ident())
        return SimpleNamespace(experiment_id="0")

    def create_run(self, _number: str, run_name: str) -> Any:
        return SimpleNamespace(info=SimpleNamespace(run_id=run_name))

    def __getattr__(self, _name: str) -> Any:
        return lambda *given, **named: None


class _FakeMLflow(MLflow):
    module = "json"

    def __init__(self, uri: str) -> None:
        pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
        super().__init__(MLflowOptions(uri=uri), BuildContext())
        entities = SimpleNamespace(Param=lambda *_: None, Metric=lambda *_: None)
        self.library = SimpleNamespace(MlflowClient=_Client, entities=entities)


@pytest.mark.parametrize("uri", ["sqlite:///{}/new.db", "file:{}/new/store", "{}/new"])
def test_runs_that_begin_at_once_make_the_tables_of_mlflow_one_after_the_other(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow's own processes break a new SQLite file, or a new folder, otherwise."""
    monkeypatch.setattr(_Client, "opened", [])
    trackers = [_FakeMLflow(uri.format(tmp_path)) for _ in range(3)]
    threads = []
    for number, tracker in enumerate(trackers):
        run = run_in(tmp_path / str(number))
        run.directory.mkdir()
        threads.append(threading.Thread(target=tracker.start, args=(run, {}, "")))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(_Client.opened) >= 3
    assert _Client.most_at_work == 1


def test_mlflow_begins_where_no_lock_can_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder above the store may be another's, who lets nobody list it."""

    def refuse(*_: object) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr("rlvr_trackers.mlflow.os", SimpleNamespace(**{**vars(os), "open": refuse}))
    tracker = _FakeMLflow(f"file:{tmp_path}/new/deep/store")

    assert tracker.start(run_in(tmp_path), {}, "")
    assert not (tmp_path / "new").exists()


def test_a_relative_place_is_that_of_the_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resume from another working folder goes on there; another option is another place."""
    folders = []
    for step, (cwd, folder) in enumerate([("one", "logs"), ("two", "logs"), ("two", "others")]):
        (tmp_path / cwd).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / cwd)
        told(_FakeMLflow(f"sqlite:///{folder}/m.db"), tmp_path, range(step, step + 1))
        tracker = without_library(Wandb, WandbOptions(folder=folder, mode="offline"))
        tracker.library = MagicMock()
        tracker.library.init.return_value.id = "id"
        monkeypatch.setattr(tracker, "reached", lambda: None)
        told(tracker, tmp_path, range(step, step + 1))
        folders.append(tracker.library.init.call_args.kwargs["dir"])

    wanted = [tmp_path / "one/logs", tmp_path / "one/logs", tmp_path / "two/others"]
    assert folders == [*map(str, wanted)]
    assert _Client.opened[-3:] == [f"sqlite:///{folder}/m.db" for folder in wanted]


def test_the_default_of_mlflow_is_that_of_the_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow's own is a file of the working folder, by what lies there; a server is none."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for step, (cwd, default) in enumerate([("one", "mlflow.db"), ("two", "mlruns/mlflow.db")]):
        (tmp_path / cwd).mkdir()
        monkeypatch.chdir(tmp_path / cwd)
        tracker = _FakeMLflow("")
        place = f"sqlite:///{Path.cwd()}/{default}"
        tracker.library.get_tracking_uri = lambda place=place: place
        told(tracker, tmp_path, range(step, step + 1))
    told(_FakeMLflow("databricks"), tmp_path, range(2, 3))
    told(_FakeMLflow("http://localhost:5000"), tmp_path, range(3, 4))

    wanted = [f"sqlite:///{tmp_path}/one/mlflow.db"] * 2
    assert _Client.opened[-4:] == [*wanted, "databricks", "http://localhost:5000"]


FOLDERS = {
    "wandb": (Wandb, WandbOptions(mode="offline"), "WANDB_DIR", "logs"),
    "tensorboard": (TensorBoard, TensorBoardOptions(folder="logs"), "", ""),
    "mlflow": (MLflow, MLflowOptions(), "MLFLOW_TRACKING_URI", "file:logs"),
}
"""Tracker, options, and the variable by which a person names a folder."""


@pytest.mark.parametrize("name", FOLDERS)
def test_a_relative_folder_of_a_real_tracker_is_that_of_the_first_start(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resume from another working folder leaves nothing there."""
    cls, options, variable, value = FOLDERS[name]
    pytest.importorskip(cls.module, reason=f"{name} is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    if variable:
        monkeypatch.setenv(variable, value)
    with structlog.testing.capture_logs() as lines:
        for step, cwd in enumerate(["one", "two"]):
            (tmp_path / cwd).mkdir()
            monkeypatch.chdir(tmp_path / cwd)
            told(cls(options, BuildContext()), tmp_path, range(step, step + 1))

    assert [line["event"] for line in lines] == ["run_tracked"] * 2
    assert [f"{tmp_path}/one/logs" in line["see"] for line in lines] == [True, True]
    assert any((tmp_path / "one" / "logs").iterdir())
    assert not any((tmp_path / "two").iterdir())


@pytest.mark.parametrize("uri", ["SQLite:///m.db", "sqlite+pysqlite:///m.db", "FILE:m.db", "m.db"])
def test_each_way_to_name_a_file_is_a_place_here(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schemes have no case, and SQLite several drivers."""
    monkeypatch.chdir(tmp_path)
    told(_FakeMLflow(uri), tmp_path, range(1))
    assert _Client.opened[-1] == uri.removesuffix("m.db").lower() + str(tmp_path / "m.db")


def file_of(uri: str) -> Path:
    """The file or folder that MLflow opens by a URI, and the folders that it makes for it."""
    if uri.startswith("sqlite"):
        importlib.import_module("mlflow.store.db.utils")._make_parent_dirs_if_sqlite(uri)
        return Path(importlib.import_module("sqlalchemy").make_url(uri).database).absolute()
    return Path(importlib.import_module("mlflow.utils.file_utils").local_file_uri_to_path(uri))


URIS = ["sqlite:///{}/m.db", "sqlite+pysqlite:///{}/m.db?timeout=9", "file:{}/m.db", "{}/m.db"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("folder", ["feature%2Fx", "my%20dir", "a?b#c %"])
@pytest.mark.parametrize("uri", ["", *(uri.format(".") for uri in URIS)])
def test_mlflow_opens_the_file_of_a_folder_of_any_name(
    uri: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As MLflow alone would there; a resume from another folder opens it again."""
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = tmp_path / "run"
    for step, cwd in enumerate([folder, "else"]):
        (tmp_path / cwd / "run").mkdir(parents=True)
        run.mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / cwd)
        tracker = _FakeMLflow(uri)
        tracker.library.get_tracking_uri = mlflow.get_tracking_uri
        told(tracker, run, range(step, step + 1))

    wanted = tmp_path / folder / ("m.db" if uri else "mlflow.db")
    assert [*map(file_of, _Client.opened[-2:])] == [wanted] * 2
    assert {path.name for path in tmp_path.iterdir()} == {folder, "else", "run"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("uri", [uri.format("~") for uri in URIS])
def test_mlflow_knows_a_home_of_any_name(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder called `~` would be hard to see and dangerous to remove."""
    pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.setenv("HOME", str(tmp_path / "my%20home"))
    monkeypatch.chdir(tmp_path)

    told(_FakeMLflow(uri), tmp_path, range(1))

    assert file_of(_Client.opened[-1]) == tmp_path / "my%20home" / "m.db"
    assert not (tmp_path / "~").exists()


def test_other_folders_below_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each tracker that has one: shells leave the `~` of `wandb.folder=~/logs`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRACKIO_DIR", "~/logs")
    board = without_library(TensorBoard, TensorBoardOptions(folder="~/logs"))
    wandb = without_library(Wandb, WandbOptions(folder="~/logs", mode="offline"))
    mlflow = without_library(MLflow, MLflowOptions(uri="http://host", artifacts="~/logs"))
    for tracker in (board, wandb, mlflow):
        tracker.library = MagicMock()
    monkeypatch.setattr(board, "_write", lambda *_, **__: None)
    mlflow.library.MlflowClient().get_experiment_by_name.return_value = None
    seen: list[Any] = [board.start(run_in(tmp_path), {}, "")]
    wandb.start(run_in(tmp_path), {}, "")
    seen.append(wandb.library.init.call_args.kwargs["dir"])
    mlflow.start(run_in(tmp_path), {}, "")
    made = mlflow.library.MlflowClient().create_experiment.call_args
    seen.append(made.kwargs["artifact_location"])
    with monkeypatch.context() as patch:
        patch.setattr(Tracker, "__init__", lambda *_: seen.append(os.environ["TRACKIO_DIR"]))
        Trackio(TrackioOptions(), BuildContext())

    assert seen == [f"{tmp_path}/logs/r1", *[f"{tmp_path}/logs"] * 3]


@pytest.mark.parametrize("uri", ["sqlite:///:memory:", "sqlite://", "SQLite+pysqlite:///"])
def test_a_database_in_memory_is_refused_in_words(uri: str, tmp_path: Path) -> None:
    """Each call has its own thread, and so would have a database of its own."""
    before = len(_Client.opened)

    assert "in memory" in stopped(_FakeMLflow(uri), tmp_path, range(1))["found"]
    assert len(_Client.opened) == before


@pytest.mark.parametrize("name", ["wandb", "tensorboard", "mlflow", "trackio"])
def test_a_place_that_cannot_be_written_is_said_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the library's words only, after a minute, or with the files in another place."""
    taken = tmp_path / "taken"
    taken.touch()
    for variable in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(variable, raising=False)
    tracker = {
        "wandb": lambda: without_library(Wandb, WandbOptions(folder=f"{taken}/logs")),
        "tensorboard": lambda: without_library(
            TensorBoard, TensorBoardOptions(folder=f"{taken}/logs")
        ),
        "mlflow": lambda: _FakeMLflow(f"sqlite:///{taken}/logs/m.db"),
        "trackio": lambda: without_library(Trackio, TrackioOptions()),
    }[name]()
    if name != "mlflow":
        tracker.library = MagicMock()
        tracker.library.utils.TRACKIO_DIR = taken

    line = stopped(tracker, tmp_path, range(1, 3))

    assert line["at"] == "start"
    assert str(taken) in line["found"]
