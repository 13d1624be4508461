"""The line a step on standard error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlvr.builtin.terminal import LineProgress, step_line
from rlvr.errors import counted
from rlvr.progress.status import RunStatus
from rlvr.types import EvalReport, RunInfo

METRICS = {
    "reward/mean": 0.5,
    "reward/pass": 0.25,
    "verify/scored": 8.0,
    "verify/cached": 3.0,
    "verify/proxy": 0.0,
    "verify/unscorable": 0.0,
    "verify/failed": 0.0,
    "rate/tokens_per_s": 100.0,
    "rate/verifications_per_s": 10.0,
    "loss": 1.25,
}


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "step", "0 steps"),
        (1, "step", "1 step"),
        (2, "test problem", "2 test problems"),
        (1, "recorded trajectory", "1 recorded trajectory"),
        (3, "recorded trajectory", "3 recorded trajectories"),
    ],
)
def test_one_is_no_plural(count: int, noun: str, text: str) -> None:
    """What is counted, as people say it."""
    assert counted(count, noun) == text


def test_a_judged_step_shows_how_many_passed() -> None:
    """What a run with a verifier is about."""
    line = step_line(1, 2, METRICS, 60)
    assert "pass 25.0%" in line
    assert "loss" not in line


def test_a_step_whose_verdicts_all_come_from_the_store_tells_no_rate() -> None:
    """A rate of 0 would read as a verifier that hangs; where nothing was scored, it is the rate."""
    line = step_line(1, 2, {**METRICS, "verify/cached": 8.0}, 60)
    assert ("verdicts from the store" in line, "verify/s" in line) == (True, False)
    assert "verify/s" in step_line(1, 2, METRICS, 60)
    nothing = {**METRICS, "verify/scored": 0.0, "verify/cached": 0.0}
    assert "verify/s" in step_line(1, 2, nothing, 60)


def test_recordings_show_the_loss() -> None:
    """Nothing was judged in full, so a pass rate would say nothing."""
    line = step_line(1, 2, {**METRICS, "verify/proxy": 8.0}, 60)
    assert "loss 1.25" in line
    assert "pass" not in line


def test_a_proxy_for_some_leaves_the_pass_rate() -> None:
    """Those judged in full have one."""
    assert "pass 25.0%" in step_line(1, 2, {**METRICS, "verify/proxy": 3.0}, 60)


def test_rewards_of_references_are_named_as_theirs() -> None:
    """What the model is trained on is right; how the loss falls is what a step tells."""
    line = step_line(1, 2, {**METRICS, "reward/pass": 1.0, "sampler/drawn": 0.0}, 60)
    assert line.startswith("step 1/2  loss 1.25  references: reward 0.500, pass 100.0%  tok/s")


def test_the_evaluation_before_the_first_step_is_no_part_of_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """100 s of it would read as 1,000 s more for ten steps of a second."""
    clock = 0.0
    monkeypatch.setattr("rlvr.builtin.terminal.time.monotonic", lambda: clock)
    line = LineProgress(RunStatus())
    run = RunInfo(
        id="r", directory=Path("r"), plugin="toy", algo="grpo", model="m", steps=10, seed=1
    )
    line.rlvr_run_started(run)
    clock = 100.0
    report = EvalReport(
        split="test", scores={"p": (1,)}, pass_at={1: 1}, low=0, high=1, reward_mean=1, samples=1
    )
    line.rlvr_evaluated(0, report)
    clock = 101.0
    line.rlvr_step_finished(1, METRICS)
    clock = 104.0  # later ones come again and again
    line.rlvr_evaluated(1, report)
    line.rlvr_step_finished(2, METRICS)
    assert re.findall(r"left (\S+)", capsys.readouterr().err) == ["0:09", "0:16"]
