"""MLflow: a tracking server or a local database."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

from attrs import frozen

from rlvr import RunInfo, option
from rlvr_trackers.tracker import ProjectOptions, Tracker, writable

_REFUSED = re.compile(r"[^\w\-. :/]|^/|/(?=/|$)|(?<![^/])\.+", re.ASCII)
_LOCAL = re.compile(
    r"(sqlite(?:\+\w+)?:(?!///file:)|file:|(?!databricks$|uc$|[\w+.-]+:))(.*)", re.IGNORECASE
)
"""A place on this machine: its scheme, if it has one, and the rest. SQLite's own URIs are none."""
_STATUS = {"done": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


@frozen(kw_only=True)
class MLflowOptions(ProjectOptions):
    """Place of the run in MLflow."""

    uri: str = option(
        "", "Server or sqlite:///FILE; empty: MLFLOW_TRACKING_URI, else MLflow's default"
    )
    artifacts: str = option("", "Place of a new experiment's tables; empty: the server's own")


class MLflow(Tracker):
    """Logs to an experiment; tables of trajectories are JSON files among the run's artifacts."""

    name = module = "mlflow"
    reports = ("MLFLOW_DISABLE_TELEMETRY", "true")
    advice = (
        "check mlflow.uri and that the server answers, or log to a local file with "
        "mlflow.uri=sqlite:///FILE (MLflow 3 takes a folder only with MLFLOW_ALLOW_FILE_STORE=true)"
    )

    def start(self, run: RunInfo, config: Mapping[str, Any], known: str) -> str:
        """Make the experiment and a run in it, or take up the run of before."""
        asked = self.options.uri or os.environ.get("MLFLOW_TRACKING_URI", "")
        uri = asked or self.library.get_tracking_uri()
        if local := _LOCAL.fullmatch(uri):
            uri = self.kept_place(asked, _absolute(local[1].lower(), local[2]))
        self._is_folder = bool(local) and not uri.startswith("sqlite")
        if not local:
            return self._begin(uri, run, config, known)
        if self._is_folder:
            store = Path(import_module("mlflow.utils.file_utils").local_file_uri_to_path(uri))
            above = next(folder for folder in store.parents if folder.is_dir())
        else:
            above = writable(Path(_url(uri).database).parent)
        with ExitStack() as stack:
            # MLflow makes the tables of a new place: two processes at once fail, or break it
            with suppress(OSError):  # no locks there, or nobody may list it
                folder = os.open(above, os.O_RDONLY)
                stack.callback(os.close, folder)
                fcntl.flock(folder, fcntl.LOCK_EX)
            return self._begin(uri, run, config, known)

    def _begin(self, uri: str, run: RunInfo, config: Mapping[str, Any], known: str) -> str:
        options = self.options
        self._client = self.library.MlflowClient(tracking_uri=uri)
        if known:
            self._client.update_run(known, status="RUNNING")
            self._id = known
            return known
        experiment = self._client.get_experiment_by_name(options.project)
        place = os.path.expanduser(options.artifacts) or None
        number = (
            experiment.experiment_id
            if experiment
            else self._client.create_experiment(options.project, artifact_location=place)
        )
        name = options.name or run.id
        self._id = str(self._client.create_run(number, run_name=name).info.run_id)
        param = self.library.entities.Param
        params = [param(_name(key), str(value)) for key, value in config.items()]
        for start in range(0, len(params), 100):  # a server takes no more at once
            self._client.log_batch(self._id, params=params[start : start + 100])
        return self._id

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log numbers of a step, all in one request."""
        now, metric = time.time_ns() // 10**6, self.library.entities.Metric
        named = _file_name if self._is_folder else _name
        metrics = [metric(named(name), value, now, step) for name, value in numbers.items()]
        for start in range(0, len(metrics), 1000):  # a server takes no more at once
            self._client.log_batch(self._id, metrics=metrics[start : start + 1000])

    def table(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the artifact `trajectories/step-NNNNNN.json`, laid out as MLflow's own tables."""
        table = {"columns": list(rows[0]), "data": [list(row.values()) for row in rows]}
        self._client.log_dict(self._id, table, f"trajectories/step-{step:06d}.json")

    def finish(self, outcome: str) -> None:
        """Set the run's status."""
        self._client.set_terminated(self._id, _STATUS[outcome])

    def place(self) -> str:
        """The server, or the command that shows local files; and the run."""
        place = self._client.tracking_uri
        if _LOCAL.fullmatch(place):
            place = f"mlflow ui --backend-store-uri {shlex.quote(place)}"
        return f"{place}  # run {self._id} of {self.options.project}"


def _absolute(scheme: str, rest: str) -> str:
    """
    The URI of a place on this machine, with an absolute path.

    Raises:
        ValueError: It names no file.
    """
    if not scheme.startswith("sqlite"):  # MLflow unquotes these paths
        rest = re.sub("^~[^/]*", lambda user: quote(os.path.expanduser(user[0])), rest)
        return scheme + os.path.normpath(os.path.join(quote(os.getcwd()), rest))
    url = _url(scheme + rest)
    if url.database in (None, "", ":memory:"):
        raise ValueError("a database in memory is gone with the process: use sqlite:///FILE")
    url = url.set(database=os.path.abspath(os.path.expanduser(url.database)))
    uri = str(url.render_as_string(hide_password=False))
    # with a driver, for MLflow makes a folder of the quoted path where there is none
    return re.sub("^sqlite:", "sqlite+pysqlite:", uri) if "%" in uri else uri


def _url(uri: str) -> Any:
    """SQLAlchemy's URL: its versions differ in what they quote."""
    return import_module("sqlalchemy").make_url(uri)


def _name(name: str) -> str:
    """The name with `_` for what MLflow refuses: other characters, empty steps of a path, dots."""
    return _REFUSED.sub("_", name[:250]) or "_"


def _file_name(name: str) -> str:
    """
    The name with `.` for `/` and `..` for `.`: MLflow's store in a folder has a file a metric.

    There `loss/policy` would need a folder where `loss` is a file. No two names become one, for
    `_name` leaves no dot behind a slash.
    """
    return _name(name).replace(".", "..").replace("/", ".")[:250]
