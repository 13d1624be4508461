"""The promises of a callback, as tests to inherit."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, chdir
from pathlib import Path
from typing import Any

import pytest

from rlvr.border.declared import overrides
from rlvr.parts import Callback
from rlvr.testing.contract import (
    Contract,
    check_declarations,
    check_part,
    not_given,
    opened,
)
from rlvr.testing.process import nothing_changed
from rlvr.types import Checkpoint, EvalReport, RunInfo

TOLD = (
    *("run_started", "evaluated", "groups_scored", "step_finished"),
    *("checkpoint_saved", "run_finished"),
)
"""The methods of a callback, in the order in which a run calls them."""
METRICS = {"reward/mean": 0.5, "reward/pass": 0.25, "loss": -0.125}


class CallbackContract(Contract):
    """Tests of a callback's promises. Define `make_callback`."""

    def make_callback(self, directory: Path) -> Callback:
        """A new callback, of a run in `directory`."""
        raise not_given(self, "make_callback")

    # --- promises -------------------------------------------------------------------------------

    def test_is_a_callback(self, tmp_path: Path) -> None:
        """It derives from `Callback`, misspells no name, and listens to something."""
        callback = self.make_callback(tmp_path)
        check_part(callback, Callback)
        own = [name for name in TOLD if overrides(callback, name)]
        assert own, f"{type(callback).__name__} defines none of {', '.join(TOLD)}"

    def test_is_told_by_plain_methods(self, tmp_path: Path) -> None:
        """No method is async: a run does not await them, so they would do nothing."""
        check_declarations(self.make_callback(tmp_path))

    @pytest.mark.parametrize("outcome", ["done", "interrupted", "failed"])
    def test_hears_a_whole_run(self, tmp_path: Path, outcome: str) -> None:
        """Open, and told all that happens in a run of two steps, it raises and changes nothing."""
        run, report = _run(tmp_path), _report()
        before = copy.deepcopy((METRICS, dict(run.config)))
        written = []

        def told(callback: Callback) -> None:
            callback.run_started(run=run)
            callback.evaluated(run=run, step=0, report=report)
            for step in (1, 2):
                callback.groups_scored(run=run, step=step, groups=())
                line = json.dumps({"step": step, **METRICS})
                written.append(f"{line}\n")
                with (tmp_path / "metrics.jsonl").open("a", encoding="utf-8") as file:
                    file.write(written[-1])
                callback.step_finished(run=run, step=step, metrics=METRICS)
                checkpoint = Checkpoint(path=tmp_path / str(step), step=step)
                callback.checkpoint_saved(run=run, checkpoint=checkpoint)
            callback.run_finished(run=run, outcome=outcome)

        with nothing_changed():
            self._with([tmp_path], told)
        assert before[0] == METRICS, "it changed the metrics that it was told"
        assert before[1] == run.config, "it changed the run's configuration"
        kept = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8")
        assert kept == "".join(written), "it changed metrics.jsonl, which is the run's own"

    def test_hears_of_a_run_that_never_began(self, tmp_path: Path) -> None:
        """A run that failed before its first step calls `run_finished` alone."""
        run = _run(tmp_path)
        self._with([tmp_path], lambda callback: callback.run_finished(run=run, outcome="failed"))

    def test_two_runs_do_not_disturb_each_other(self, tmp_path: Path) -> None:
        """Two callbacks of two runs are told in turns."""
        places = [tmp_path / "one", tmp_path / "other"]
        for place in places:
            place.mkdir()
        runs = [_run(place) for place in places]

        def told(*callbacks: Callback) -> None:
            for callback, run in zip(callbacks, runs, strict=True):
                callback.run_started(run=run)
            for callback, run in zip(callbacks, runs, strict=True):
                callback.step_finished(run=run, step=1, metrics=METRICS)
            for callback, run in zip(callbacks, runs, strict=True):
                callback.run_finished(run=run, outcome="done")

        self._with(places, told)

    # --- helpers --------------------------------------------------------------------------------

    def _with(self, places: Sequence[Path], told: Callable[..., None]) -> None:
        """In a folder of the test's own, where a callback may leave files by default."""

        async def body() -> None:
            async with AsyncExitStack() as stack:
                made = [self.make_callback(place) for place in places]
                told(*[await stack.enter_async_context(opened(one)) for one in made])

        with chdir(places[0]):
            asyncio.run(body())


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
