"""The promises of a callback, as tests to inherit."""

from __future__ import annotations

import copy
import inspect
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rlvr.parts import Callback
from rlvr.testing.contract import Contract, check_part, not_given
from rlvr.types import Checkpoint, EvalReport, RunInfo

TOLD = (
    *("run_started", "evaluated", "groups_scored", "step_finished"),
    *("checkpoint_saved", "run_finished"),
)
"""What a callback is told, in the order of a run."""
METRICS = {"reward/mean": 0.5, "reward/pass": 0.25, "loss": -0.125}


class CallbackContract(Contract):
    """What every callback must hold. Give `make_callback`."""

    def make_callback(self, directory: Path) -> Callback:
        """A new callback, of a run in `directory`."""
        raise not_given(self, "make_callback")

    # --- promises -------------------------------------------------------------------------------

    def test_is_a_callback(self, tmp_path: Path) -> None:
        """It derives from `Callback`, misspells no name, and listens to something."""
        callback = self.make_callback(tmp_path)
        check_part(callback, Callback)
        own = [n for n in TOLD if getattr(type(callback), n) is not getattr(Callback, n)]
        assert own, f"{type(callback).__name__} defines none of {', '.join(TOLD)}"

    def test_is_told_by_plain_methods(self, tmp_path: Path) -> None:
        """No method is async: nobody awaits it, so that it would do nothing."""
        callback = self.make_callback(tmp_path)
        late = [n for n in TOLD if inspect.iscoroutinefunction(getattr(callback, n))]
        assert not late, f"async, and never awaited: {', '.join(late)}"

    @pytest.mark.parametrize("outcome", ["done", "interrupted", "failed"])
    def test_hears_a_whole_run(self, tmp_path: Path, outcome: str) -> None:
        """Told all that happens in a run of two steps, it raises nothing and changes nothing."""
        callback, run = self.make_callback(tmp_path), _run(tmp_path)
        before, environment, folder = copy.deepcopy(METRICS), dict(os.environ), Path.cwd()
        report = _report()
        callback.run_started(run)
        callback.evaluated(run, step=0, report=report)
        for step in (1, 2):
            callback.groups_scored(run, step=step, groups=())
            line = json.dumps({"step": step, **METRICS})
            with (tmp_path / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(line + "\n")
            callback.step_finished(run, step=step, metrics=METRICS)
            checkpoint = Checkpoint(path=tmp_path / str(step), step=step)
            callback.checkpoint_saved(run, checkpoint=checkpoint)
        callback.run_finished(run, outcome=outcome)
        assert before == METRICS, "it changed the metrics that it was told"
        assert (dict(os.environ), Path.cwd()) == (environment, folder)

    def test_hears_of_a_run_that_never_began(self, tmp_path: Path) -> None:
        """A run that failed before its first step is told as finished, and as nothing else."""
        self.make_callback(tmp_path).run_finished(_run(tmp_path), outcome="failed")

    def test_two_runs_do_not_disturb_each_other(self, tmp_path: Path) -> None:
        """Two callbacks of two runs are told in turns."""
        places = [tmp_path / "one", tmp_path / "other"]
        told: list[tuple[Callback, RunInfo]] = []
        for place in places:
            place.mkdir()
            told.append((self.make_callback(place), _run(place)))
        for callback, run in told:
            callback.run_started(run)
        for callback, run in told:
            callback.step_finished(run, step=1, metrics=METRICS)
        for callback, run in told:
            callback.run_finished(run, outcome="done")


def _run(directory: Path) -> RunInfo:
    values: dict[str, Any] = {"plugin": "toy", "algo": "grpo", "model": "starter"}
    return RunInfo(id="r1", directory=directory, steps=2, seed=1, **values)


def _report() -> EvalReport:
    scores = {"a": (1.0, 0.0)}
    return EvalReport(
        split="test",
        scores=scores,
        pass_at={1: 0.5},
        low=0.1,
        high=0.9,
        reward_mean=0.5,
        samples=2,
    )
