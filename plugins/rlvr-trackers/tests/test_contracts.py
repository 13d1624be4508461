"""The plugin and its four trackers keep the contracts of the core."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tracker_fixture import told

from rlvr import BuildContext
from rlvr.testing import CallbackContract, PluginContract
from rlvr_trackers.mlflow import MLflow, MLflowOptions
from rlvr_trackers.tensorboard import TensorBoard, TensorBoardOptions
from rlvr_trackers.tracker import Tracker
from rlvr_trackers.trackio import Trackio, TrackioOptions
from rlvr_trackers.wandb import Wandb, WandbOptions


class Contract(CallbackContract):
    """A failure would be silent: nothing may have stopped."""

    @pytest.fixture(autouse=True)
    def _never_stops(self, capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
        yield
        assert "tracker_stopped" not in capsys.readouterr().err


class TestPlugin(PluginContract):
    module = "rlvr_trackers.plugin"


class TestTensorBoard(Contract):
    def make_callback(self, directory: Path) -> TensorBoard:
        pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
        return TensorBoard(TensorBoardOptions(), BuildContext(run_dir=directory))


# sqlalchemy 2.1 deprecates what MLflow calls
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
class TestMLflow(Contract):
    @pytest.fixture(scope="class")
    def empty(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A database that has MLflow's tables, which take it a second to make."""
        mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
        file = tmp_path_factory.mktemp("mlflow") / "empty.db"
        mlflow.MlflowClient(f"sqlite:///{file}").get_experiment_by_name("none")
        return file

    @pytest.fixture(autouse=True)
    def _closes_its_runs(self, empty: Path, tmp_path: Path) -> Iterator[None]:
        shutil.copy(empty, tmp_path / "kept.db")
        yield
        with closing(sqlite3.connect(tmp_path / "kept.db")) as database:
            states = {state for (state,) in database.execute("SELECT status FROM runs")}
        assert states <= {"FINISHED", "KILLED", "FAILED"}

    def make_callback(self, directory: Path) -> Tracker:
        pytest.importorskip("mlflow", reason="MLflow is not installed")
        folder = directory if directory.name.startswith("test_") else directory.parent
        options = MLflowOptions(uri=f"sqlite:///{folder}/kept.db", artifacts=str(folder / "kept"))
        return MLflow(options, BuildContext(run_dir=directory))


@pytest.mark.usefixtures("trackio_folder")
class TestTrackio(Contract):
    def make_callback(self, directory: Path) -> Tracker:
        return Trackio(TrackioOptions(), BuildContext(run_dir=directory))


class TestWandb(Contract):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _serves(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        """A process's first run starts wandb's service and hook, which stay until it ends."""
        pytest.importorskip("wandb", reason="wandb is not installed")
        before = Wandb(WandbOptions(mode="offline"), BuildContext())
        told(before, tmp_path_factory.mktemp("wandb"), range(0))

    def make_callback(self, directory: Path) -> Tracker:
        return Wandb(WandbOptions(mode="offline"), BuildContext(run_dir=directory))
