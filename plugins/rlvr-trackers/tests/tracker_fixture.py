"""A tracker that keeps what it is told, a run that tells, and what its directory holds then."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from rlvr import (
    BuildContext,
    EvalReport,
    Problem,
    Reward,
    RunInfo,
    ScoredGroup,
    Segment,
    Trajectory,
)
from rlvr_trackers.tracker import Tracker, TrackerOptions

METRICS = {"reward/mean": 0.5}


class Lines(Tracker):
    """Keeps what it is told; `faults` are called in place of what they name."""

    name = "lines"
    module = "json"
    advice = "look at the lines"
    faults: dict[str, Callable[[], None]]
    kept: int | None = None

    def __init__(self, timeout_s: float = 30.0, **faults: Callable[[], None]) -> None:
        super().__init__(TrackerOptions(timeout_s=timeout_s), BuildContext())
        self.lines: list[tuple[Any, ...]] = []
        self.faults = faults

    def _told(self, what: str, *facts: Any) -> None:
        self.lines.append((what, *facts))
        print("chatter")
        self.faults.get(what, lambda: None)()

    def start(self, run: RunInfo, config: Any, known: str) -> str:
        self._told("start", known)
        return known or "new"

    def reached(self) -> int | None:
        return self.kept

    def log(self, step: int, numbers: Any) -> None:
        self._told("log", step, *numbers)

    def table(self, step: int, rows: Any) -> None:
        self._told("table", step, len(rows))

    def finish(self, outcome: str) -> None:
        self._told("finish", outcome)


def raising(error: BaseException) -> Callable[[], None]:
    def fault() -> None:
        raise error

    return fault


def run_in(directory: Path, **config: Any) -> RunInfo:
    values: dict[str, Any] = {"plugin": "toy", "algo": "grpo", "model": "starter"}
    return RunInfo(id="r1", directory=directory, steps=9, seed=1, config=config, **values)


def group(*outcomes: Any) -> ScoredGroup:
    segments = [
        Segment(author="prompt", tokens=[1], text="Say a"),
        Segment(author="policy", tokens=[2, 3], logprobs=[-1.0, -1.0], text="aaaaaaaa"),
        Segment(author="env", tokens=[4], text="|no|"),
        Segment(author="policy", tokens=[5], logprobs=[-1.0], text="a"),
    ]
    problem = Problem(id="p", prompt=())
    trajectories = [
        Trajectory(problem_id="p", segments=segments, index=i) for i in range(len(outcomes))
    ]
    return ScoredGroup(problem=problem, trajectories=trajectories, outcomes=outcomes)


def evaluated() -> EvalReport:
    """As `record` writes it."""
    return EvalReport(
        split="test", scores={"a": (1.0,)}, pass_at={1: 1.0}, low=0.0, high=1.0, reward_mean=0.5,
        samples=1, seconds=0.2501,
    )  # fmt: skip


def told(tracker: Tracker, directory: Path, steps: range, outcome: str = "done") -> None:
    """What a run tells in these steps."""
    run = run_in(directory)
    tracker.run_started(run=run)
    for step in steps:
        groups = [group(Reward(value=0.5, score01=1.0))]
        tracker.groups_scored(run=run, step=step, groups=groups)
        tracker.step_finished(run=run, step=step, metrics=METRICS)
    tracker.run_finished(run=run, outcome=outcome)


def record(directory: Path, steps: range) -> None:
    """What a run directory holds after these steps, with an evaluation of the last one."""
    lines = [json.dumps({"step": step, **METRICS}) for step in steps]
    (directory / "metrics.jsonl").write_text("\n".join(lines), encoding="utf-8")
    report = {
        "split": "test", "scores": {"a": [1.0]}, "pass_at": {"1": 1.0}, "low": 0.0, "high": 1.0,
        "reward_mean": 0.5, "samples": 1, "failed": 0, "seconds": 0.25, "seen": [], "measures": {},
        "held_out": None, "pass1": 1.0, "problems": 1,
    }  # fmt: skip
    line = json.dumps({"step": steps[-1], **report})
    (directory / "eval.jsonl").write_text(line, encoding="utf-8")


def stopped(tracker: Tracker, directory: Path, steps: range) -> dict[str, Any]:
    """The one line of log of a tracker that fails in these steps."""
    with structlog.testing.capture_logs() as lines:
        told(tracker, directory, steps)
    assert [line["event"] for line in lines] == ["tracker_stopped"], lines
    return dict(lines[0])


def kept_before(directory: Path, tracker: str, text: str) -> Path:
    """The file of the tracker's run in a run directory, as it was left."""
    file = directory / "trackers" / f"{tracker}.json"
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    return file


def without_library(tracker: type[Tracker], options: Any, run_dir: Path | None = None) -> Any:
    """The tracker, whose library is not imported."""
    return type("Fake", (tracker,), {"module": "json"})(options, BuildContext(run_dir=run_dir))
