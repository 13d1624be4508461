"""Callbacks of a run: what they are told, and what their failures cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlvr import Callback, RunInfo
from rlvr.border import calls
from rlvr.plugins.host import PluginHost
from rlvr.progress.status import RunStatus
from rlvr.records.run_directory import RunDir
from rlvr.specs import CallbackSpec
from rlvr.training.callbacks import Callbacks


class Hears(Callback):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def run_started(self, run: RunInfo) -> None:
        self.heard.append(("run_started", run.id))

    def step_finished(self, run: RunInfo, step: int, metrics: Any) -> None:
        self.heard.append(("step_finished", step))

    def run_finished(self, run: RunInfo, outcome: str) -> None:
        self.heard.append(("run_finished", outcome))


class Fails(Callback):
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def step_finished(self, run: RunInfo, step: int, metrics: Any) -> None:
        raise self._error


class Waits(Callback):
    async def step_finished(  # type: ignore[override]  # the planted fault
        self, run: RunInfo, step: int, metrics: Any
    ) -> None:
        raise AssertionError("nobody awaits it")


def told(directory: Path, *parts: Callback) -> None:
    """Tell them of a run with one step."""
    run = RunInfo(id="r1", directory=directory, plugin="toy", algo="x", model="m", steps=1, seed=1)
    for number, part in enumerate(parts):
        calls.built(CallbackSpec(name=f"own{number}", target="a:b", provider="stranger"), part)
    watch = Callbacks(
        host=PluginHost.load({"RLVR_PLUGINS": ""}),
        run=run,
        directory=RunDir(directory),
        status=RunStatus(),
        parts=parts,
    )
    watch.announce("rlvr_run_started")
    watch.announce("rlvr_step_finished", step=1, metrics={})
    watch.announce("rlvr_run_finished", outcome="done")


WHOLE = [("run_started", "r1"), ("step_finished", 1), ("run_finished", "done")]


def test_callbacks_are_told_what_hooks_are_told(tmp_path: Path) -> None:
    """Each in its turn, with the run; what they do not define is nothing."""
    one, other = Hears(), Hears()
    told(tmp_path, one, Callback(), other)

    assert one.heard == other.heard == WHOLE


@pytest.mark.parametrize("kind", [ValueError, SystemExit, GeneratorExit, BaseException])
def test_a_failing_callback_is_named_and_the_others_are_told(
    tmp_path: Path, kind: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    """With its plugin; the run goes on."""
    other = Hears()
    told(tmp_path, Fails(kind("no network")), other)

    said = capsys.readouterr().err
    assert other.heard == WHOLE
    assert "observer_failed" in said
    assert "plugin 'stranger'" in said


def test_an_async_method_is_named_and_not_left_unawaited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would do nothing in silence."""
    told(tmp_path, Waits())

    assert "step_finished is async" in capsys.readouterr().err


def test_a_cancellation_passes_through(tmp_path: Path) -> None:
    """Ctrl-C is no fault of the callback."""
    with pytest.raises(KeyboardInterrupt):
        told(tmp_path, Fails(KeyboardInterrupt()))
