"""CallbackContract passes on a right callback, and finds each planted fault."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlvr import Callback, NearMissWarning, RunInfo
from rlvr.testing import CallbackContract
from tests.testing.conftest import Broken, Faults, contract_of

breaks = Faults()


class Counts(Callback):
    """Counts steps."""

    steps = 0

    def step_finished(self, run: RunInfo, step: int, metrics: Mapping[str, float]) -> None:
        self.steps += 1


@breaks("is_a_callback")
class Deaf(Callback):
    """Listens to nothing."""


@breaks("is_told_by_plain_methods")
class Late(Callback):
    async def step_finished(  # type: ignore[override]  # the planted fault
        self, run: RunInfo, step: int, metrics: Mapping[str, float]
    ) -> None:
        pass


@breaks("hears_of_a_run_that_never_began")
class NeedsAStart(Counts):
    def run_started(self, run: RunInfo) -> None:
        self.run = run

    def run_finished(self, run: RunInfo, outcome: str) -> None:
        assert self.run == run


@breaks("hears_a_whole_run")
class ChangesMetrics(Callback):
    def step_finished(self, run: RunInfo, step: int, metrics: Any) -> None:
        metrics["reward/mean"] = 1.0


@breaks("hears_a_whole_run")
class ChangesTheEnvironment(Counts):
    def run_started(self, run: RunInfo) -> None:
        os.environ["RLVR_TEST_LEFT_BEHIND"] = run.id


@breaks("hears_a_whole_run")
class ChangesTheConfiguration(Counts):
    def run_started(self, run: RunInfo) -> None:
        config: Any = run.config
        config["train.lr"] = 1.0


@breaks("hears_a_whole_run")
class RewritesTheRunsFile(Counts):
    def run_finished(self, run: RunInfo, outcome: str) -> None:
        (run.directory / "metrics.jsonl").write_text("")


@breaks("hears_a_whole_run")
class IgnoresCtrlC(Counts):
    def run_started(self, run: RunInfo) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@breaks("hears_a_whole_run")
class TakesStandardOutput(Counts):
    def run_started(self, run: RunInfo) -> None:
        sys.stdout = sys.stderr


@breaks("hears_a_whole_run")
class SilencesTheLog(Counts):
    def run_started(self, run: RunInfo) -> None:
        logging.disable(logging.CRITICAL)


@breaks("hears_a_whole_run")
class HidesFilesFromOthers(Counts):
    def run_started(self, run: RunInfo) -> None:
        os.umask(0o77)


@breaks("two_runs_do_not_disturb_each_other")
class SharesItsRun(Counts):
    run: Any = None

    def run_started(self, run: RunInfo) -> None:
        type(self).run = run

    def run_finished(self, run: RunInfo, outcome: str) -> None:
        assert self.run is None or self.run == run


@breaks("is_a_callback")
class Stranger:
    """Has every method, and no base class."""

    def __getattr__(self, name: str) -> Any:
        return getattr(Counts(), name)


def test_a_right_callback_holds_every_promise(broken: Broken) -> None:
    """The kit raises no false alarm."""
    assert broken(CallbackContract, make_callback=lambda _: Counts()) == set()


@pytest.mark.parametrize(("callback", "promise"), breaks.cases)
@pytest.mark.filterwarnings("ignore:coroutine")
def test_faults_are_found(
    callback: type, promise: str, broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each planted fault fails the test whose promise it breaks."""
    monkeypatch.setenv("RLVR_TEST_LEFT_BEHIND", "before")
    monkeypatch.setattr("rlvr.testing.callback.METRICS", {"reward/mean": 0.5})

    assert promise in broken(CallbackContract, promise, make_callback=lambda _: callback())


def test_a_change_of_the_environment_is_told_without_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be keys, and logs of a CI are read by many."""
    monkeypatch.setenv("RLVR_TEST_LEFT_BEHIND", "a-secret")
    monkeypatch.setenv("RLVR_TEST_OTHER", "a-secret")

    contract = contract_of(CallbackContract, make_callback=lambda _: ChangesTheEnvironment())
    with pytest.raises(AssertionError) as caught:
        contract().test_hears_a_whole_run(tmp_path, "done")

    assert "RLVR_TEST_LEFT_BEHIND" in str(caught.value)
    assert "RLVR_TEST_OTHER" not in str(caught.value)
    assert "a-secret" not in str(caught.value)


@pytest.mark.parametrize(
    "slip",
    [
        *("run_start", "run_starts", "runStarted", "rum_started", "evaluate", "evalauted"),
        *("group_scored", "groupsScored", "groups_socred", "step_finish", "steps_finished"),
        *("stepFinishd", "checkpoints_saved", "checkpoint_save", "checkpointSaved"),
        *("run_finish", "run_finised", "runFinished", "run_finihsed"),
    ],
)
def test_a_slip_in_a_name_is_caught(slip: str, broken: Broken) -> None:
    """A misspelt method would never be told: its class cannot be made, or the kit fails."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NearMissWarning)
            callback = type("Slipped", (Counts,), {slip: lambda self, *facts: None})
    except TypeError as error:
        assert "did you mean" in str(error)  # noqa: PT017  # either way is right
    else:
        assert "is_a_callback" in broken(CallbackContract, make_callback=lambda _: callback())
