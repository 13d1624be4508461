"""What all trackers share: what is logged and when, limits of time, going on after a resume."""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import structlog
from attrs import frozen
from attrs.validators import ge, gt

from rlvr import (
    BuildContext,
    Callback,
    EvalReport,
    PrerequisiteError,
    RunInfo,
    ScoredGroup,
    option,
    pip_install,
    stdout_to_stderr,
)
from rlvr_trackers.entries import (
    evaluation_numbers,
    public,
    public_config,
    recorded,
    table_rows,
    without_secrets,
)

log = structlog.get_logger(__name__)
_ASKING_NOBODY = threading.Lock()
"""Runs in threads share standard input."""


def writable(folder: Path) -> Path:
    """
    The folder, made if need be.

    Raises:
        OSError: No file can be written there. Libraries then write elsewhere, try for minutes, or
            lose the run in the background.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        file.write(bytes(4096))
    return folder


class _Public:
    """A stream without secrets: libraries print the address of a server with its password."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(without_secrets(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@frozen(kw_only=True)
class TrackerOptions:
    """Options that every tracker has."""

    table_every: int = option(
        10, "Steps from one table of trajectories to the next; 0: none", validator=ge(0)
    )
    table_rows: int = option(8, "Trajectories in a table at most", validator=ge(1))
    table_chars: int = option(
        4000, "Characters of a prompt or answer in a table at most", validator=ge(1)
    )
    timeout_s: float = option(
        60.0, "Time after which a call of the tracker is given up", unit="s", validator=gt(0)
    )


@frozen(kw_only=True)
class ProjectOptions(TrackerOptions):
    """Options of trackers that keep runs in projects."""

    project: str = option("rlvr", "Project (in MLflow: experiment)")
    name: str = option("", "Name of the run there; empty: that of the run directory")


class Tracker(Callback):
    """
    Logs a run to one tracker. A subclass says how to start, log a step, log a table, and finish.

    `RUN/trackers/NAME.json` keeps the tracker's id of the run, the last step of each kind of entry,
    and where relative places lay, so a resumed run goes on in the same tracker run and logs no step
    again. Steps that the run directory has and the tracker lacks are logged first. A call that
    raises or takes longer than `timeout_s` is warned of once; nothing is logged after that. The
    tracker's run is closed all the same, unless a call still hangs.
    """

    name: ClassVar[str]
    """Name of the callback, of the extra that installs it, and of its file in the run directory."""
    module: ClassVar[str]
    """Module to import."""
    reports: ClassVar[tuple[str, str]] = ("", "")
    """Variable and value by which the library reports nothing to its makers; offline or not."""
    advice: ClassVar[str]
    """What a person checks when the tracker fails."""

    def __init__(self, config: Any, context: BuildContext) -> None:
        """
        Import the tracker's library.

        Raises:
            PrerequisiteError: The library is not installed, or cannot be imported.
        """
        del context
        self.options = config
        try:
            with self._without_reports():
                self.library: Any = importlib.import_module(self.module)
        except ImportError as error:
            raise PrerequisiteError(
                f"the callback {self.name!r} needs the Python module {self.module!r}.",
                f"found: {error}",
                f"{pip_install(f'rlvr-trackers[{self.name}]')}, or leave {self.name!r} out of "
                "--callback",
            ) from error
        self._is_on = self._is_open = self._has_warned = False
        self._kept: dict[str, Any] = {"id": "", "last": {}}

    # --- what a tracker defines -----------------------------------------------------------------

    @abstractmethod
    def start(self, run: RunInfo, config: Mapping[str, Any], known: str) -> str:
        """Open the run `known`, or a new one if it is empty; give back its id."""

    def reached(self) -> int | None:
        """Last step that the tracker kept of the resumed run; None: all that it was told."""
        return None

    @abstractmethod
    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log numbers of a step."""

    @abstractmethod
    def table(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Log trajectories of a step: at least one row; all rows have the same keys."""

    @abstractmethod
    def finish(self, outcome: str) -> None:
        """Send what is left and close the run: "done", "interrupted" or "failed"."""

    def place(self) -> str:
        """Where a person finds what was logged, or the command that shows it; "": nothing to say.

        Asked before `finish`, and logged after it.
        """
        return ""

    # --- for its use ----------------------------------------------------------------------------

    def kept_place(self, asked: str, now: str = "") -> str:
        """
        The place that `asked` meant at the run's first start: a resume goes on there.

        Args:
            asked: As a person wrote it, "" a library's default.
            now: What it means today; "": the absolute path.
        """
        places = self._kept.setdefault("places", {})
        return str(places.setdefault(asked, now or os.path.abspath(os.path.expanduser(asked))))

    # --- what the run tells ---------------------------------------------------------------------

    def run_started(self, run: RunInfo) -> None:
        """
        Open the tracker's run, or go on with that of the run directory.

        Then log what it lacks: what a killed process did not send, or all before a tracker came.
        """
        self._file = run.directory / "trackers" / f"{self.name}.json"
        self._is_on = True
        self._guarded("start", lambda: self._start(run))
        missed: list[tuple[int, str, dict[str, float]]] = []
        self._guarded("start", lambda: missed.extend(recorded(run.directory)))
        for step, entry, numbers in missed:
            self._once(entry, step, partial(self.log, step, numbers))

    def _start(self, run: RunInfo) -> None:
        self._file.parent.mkdir(exist_ok=True)
        if self._file.exists():
            self._kept |= _checked(json.loads(self._file.read_text(encoding="utf-8")))
        self._is_open = True  # also where it fails half-way
        known = self._kept["id"]
        with self._without_reports():
            self._kept["id"] = self.start(run, public_config(run), known)
        if known and (reached := self.reached()) is not None:
            last = self._kept["last"]
            self._kept["last"] = {entry: min(step, reached) for entry, step in last.items()}
        self._keep()

    def evaluated(self, run: RunInfo, step: int, report: EvalReport) -> None:
        """Log an evaluation."""
        self._once("evaluation", step, lambda: self.log(step, evaluation_numbers(report)))

    def groups_scored(self, run: RunInfo, step: int, groups: Sequence[ScoredGroup]) -> None:
        """Log a table of trajectories where one is due: in the first step and every Nth after."""
        options = self.options
        if options.table_every and (step - 1) % options.table_every == 0:
            rows = table_rows(groups, most=options.table_rows, chars=options.table_chars)
            if rows:
                self._once("table", step, lambda: self.table(step, rows))

    def step_finished(self, run: RunInfo, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of a step."""
        self._once("metrics", step, lambda: self.log(step, metrics))

    def run_finished(self, run: RunInfo, outcome: str) -> None:
        """Close the tracker's run, and say where it is."""
        self._is_on = self._is_open
        places: list[str] = []

        def finished() -> None:
            place = "" if self._has_warned else self.place()
            self.finish(outcome)
            places.append(place)

        self._guarded("finish", finished)
        for place in filter(None, places):
            log.info("run_tracked", tracker=self.name, see=public("see", place))
        self._is_on = self._is_open = False

    # --- once, in time, or never again ----------------------------------------------------------

    def _once(self, entry: str, step: int, act: Callable[[], None]) -> None:
        """Log an entry of a step, unless the tracker has it from before a resume."""
        if step <= self._kept["last"].get(entry, -1):
            return

        def logged() -> None:
            act()
            self._kept["last"][entry] = step
            self._keep()

        self._guarded(entry, logged)

    @contextmanager
    def _without_reports(self) -> Iterator[None]:
        """Set the variable `reports`, unless a person did, for the library and its processes."""
        variable, value = self.reports
        if not variable or variable in os.environ:
            yield
            return
        os.environ[variable] = value
        try:
            yield
        finally:
            os.environ.pop(variable, None)

    def _keep(self) -> None:
        beside = self._file.with_suffix(".new")
        beside.write_text(json.dumps(self._kept), encoding="utf-8")
        os.replace(beside, self._file)

    def _guarded(self, what: str, act: Callable[[], None]) -> None:
        """
        Do it in a thread of its own and wait for it `timeout_s`; a failure switches this off.

        The thread is a daemon: one that hangs for ever does not keep the process. Trackers print
        what they like; it goes to standard error, for results stand on standard output. They can
        ask nobody: no person sits before a run.
        """
        if not self._is_on:
            return
        raised: list[BaseException] = []

        def caught() -> None:
            try:
                act()
            except BaseException as error:  # the border to a library: it ends no run
                raised.append(error)

        thread = threading.Thread(target=caught, name=f"tracker-{self.name}", daemon=True)
        with (
            _ASKING_NOBODY,
            redirect_stderr(sys.stderr and _Public(sys.stderr)),
            stdout_to_stderr(),
            open(os.devnull, encoding="utf-8") as nothing,
        ):
            before, sys.stdin = sys.stdin, nothing
            try:
                thread.start()
                thread.join(self.options.timeout_s)
            finally:
                sys.stdin = before
        if thread.is_alive():
            self._is_open = False
            self._give_up(what, f"no answer in {self.options.timeout_s:g} s")
        elif raised:
            found = public("found", f"{type(raised[0]).__name__}: {raised[0]}")
            self._give_up(what, found[:1000])

    def _give_up(self, what: str, found: str) -> None:
        self._is_on = False
        if self._has_warned:
            return
        self._has_warned = True
        log.warning(
            "tracker_stopped",
            tracker=self.name,
            at=what,
            found=found,
            do=f"{self.advice}; the run goes on, its own files hold every number. A later --resume "
            f"tries the tracker again (a new run there: remove {self._file})",
        )


def _checked(kept: Any) -> dict[str, Any]:
    """
    What the file of the id holds.

    Raises:
        ValueError: It is damaged.
    """
    kinds: dict[str, type] = {"last": int, "places": str}
    if not (
        isinstance(kept, dict)
        and isinstance(kept.get("id", ""), str)
        and all(isinstance(kept.get(name, {}), dict) for name in kinds)
        and all(isinstance(v, kinds[name]) for name in kinds for v in kept.get(name, {}).values())
    ):
        raise ValueError("the file of the tracker's run is damaged")
    return kept
