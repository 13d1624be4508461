"""The base of trackers: what is given to them, and what their failures cost."""

from __future__ import annotations

import errno
import json
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from rlvr import (
    BuildContext,
    EvalReport,
    Failed,
    PrerequisiteError,
    Problem,
    Reward,
    RunInfo,
    ScoredGroup,
    Segment,
    Trajectory,
    log,
)
from rlvr.testing import CallbackContract
from rlvr_trackers.entries import HIDDEN, evaluation_numbers, public_config, table_rows
from rlvr_trackers.tensorboard import TensorBoard, TensorBoardOptions
from rlvr_trackers.tracker import Tracker, TrackerOptions

METRICS = {"reward/mean": 0.5}


class Lines(Tracker):
    """Keeps what it is told; `faults` are called in place of what they name."""

    name = "lines"
    module = "json"
    advice = "look at the lines"
    faults: dict[str, Callable[[], None]]

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

    def log(self, step: int, numbers: Any) -> None:
        self._told("log", step, *numbers)

    def table(self, step: int, rows: Any) -> None:
        self._told("table", step, len(rows))

    def finish(self, outcome: str) -> None:
        self._told("finish", outcome)


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


def told(tracker: Tracker, directory: Path, steps: range, outcome: str = "done") -> None:
    """What a run tells in these steps."""
    run = run_in(directory)
    tracker.run_started(run=run)
    for step in steps:
        groups = [group(Reward(value=0.5, score01=1.0))]
        tracker.groups_scored(run=run, step=step, groups=groups)
        tracker.step_finished(run=run, step=step, metrics=METRICS)
    tracker.run_finished(run=run, outcome=outcome)


@pytest.fixture(autouse=True)
def _shown() -> None:
    log.setup()


# --- what is given ------------------------------------------------------------------------------


def test_each_kind_of_entry_is_logged_once_whatever_is_repeated(tmp_path: Path) -> None:
    """Steps 1-12, then a resume that repeats 11 and 12: the second run logs 13 only, same id."""
    first, second = Lines(), Lines()
    told(first, tmp_path, range(1, 13), "interrupted")
    told(second, tmp_path, range(11, 14))

    tables = [line for line in first.lines if line[0] == "table"]
    assert tables == [("table", 1, 1), ("table", 11, 1)]
    assert second.lines == [("start", "new"), ("log", 13, "reward/mean"), ("finish", "done")]


def test_nothing_a_tracker_prints_stands_on_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results of the command line stand there."""
    told(Lines(), tmp_path, range(1, 2))

    said = capsys.readouterr()
    assert said.out == ""
    assert "chatter" in said.err


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("server.api_key", "sk-1", HIDDEN),
        ("hub.token", "hf_1", HIDDEN),
        ("db.password", "x", HIDDEN),
        ("x.secret", ["a", "b"], HIDDEN),
        ("http.headers", {"Authorization": "Bearer 1"}, HIDDEN),
        ("x.api-key", "k", HIDDEN),
        ("sampler.max_tokens", 64, 64),
        ("server.api_key", "", ""),
        ("sad.keyword", "verilog", "verilog"),
        ("server.api_key_env", "MY_KEY", "MY_KEY"),
        ("mlflow.uri", "https://me:pw@host:5000/a", f"https://{HIDDEN}@host:5000/a"),
        ("trackio.url", "http://h/?write_token=abc&a=1", f"http://h/?write_token={HIDDEN}&a=1"),
        ("a.files", ("one", "two"), ["one", "two"]),
        ("a.map", {"token": "t", "size": 3}, {"token": HIDDEN, "size": 3}),
        ("a.path", Path("x/y"), "x/y"),
        ("a.none", None, None),
    ],
)
def test_configuration_has_no_secrets_and_nothing_else_is_hidden(
    tmp_path: Path, name: str, value: Any, shown: Any
) -> None:
    """By the option's last word, and in URLs; numbers and empty texts are no secrets."""
    config = public_config(run_in(tmp_path, **{name: value}))

    assert config[name] == shown
    assert config["run.algo"] == "grpo"
    json.dumps(config)


def test_numbers_of_an_evaluation() -> None:
    """Named as in eval.jsonl, below `eval/`; of recorded trajectories only the loss."""
    report = EvalReport(
        split="test", scores={"a": (1.0, 0.0)}, pass_at={1: 0.5, 2: 1.0},
        low=0.1, high=0.9, reward_mean=0.25, samples=2, seconds=3.0,
    )  # fmt: skip

    assert evaluation_numbers(report) == {
        "eval/pass1": 0.5, "eval/low": 0.1, "eval/high": 0.9, "eval/reward_mean": 0.25,
        "eval/samples": 2.0, "eval/failed": 0.0, "eval/seconds": 3.0,
        "eval/pass_at/1": 0.5, "eval/pass_at/2": 1.0,
    }  # fmt: skip
    assert evaluation_numbers(evolve(report, held_out=False))["eval/held_out"] == 0.0
    recorded = evolve(report, measures={"eval/loss": 2.0})
    assert evaluation_numbers(recorded) == {"eval/loss": 2.0, "eval/seconds": 3.0}


def test_rows_are_bounded_spread_and_cut() -> None:
    """Two of six trajectories: the first of each group; an answer holds all turns after it."""
    groups = [
        group(Reward(value=0.5, score01=1.0), *[Failed(reason="no simulator")] * 2),
        group(*[Failed(reason="no simulator")] * 3),
    ]

    first, second = table_rows(groups, most=2, chars=9)

    assert first == {
        "problem": "p", "index": 0, "prompt": "Say a",
        "answer": "aaaaaaaa| [4 more characters]", "reward": 0.5, "score01": 1.0,
        "outcome": "reward", "finish": "stop", "tokens": 3,
    }  # fmt: skip
    assert (second["index"], second["outcome"], second["reward"]) == (0, "failed", None)
    assert len(table_rows(groups, most=99, chars=9)) == 6
    assert table_rows([], most=2, chars=9) == []


# --- what a failure costs -----------------------------------------------------------------------


def _raise(error: BaseException) -> Callable[[], None]:
    def fault() -> None:
        raise error

    return fault


@pytest.mark.parametrize("at", ["start", "log", "table", "finish"])
@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), SystemExit(1), KeyboardInterrupt()],
    ids=["disk", "exit", "interrupt"],
)
def test_a_failure_is_warned_of_once_and_then_there_is_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], at: str, error: BaseException
) -> None:
    """Nothing is called after it, and the warning says what to do."""
    tracker = Lines(**{at: _raise(error)})
    told(tracker, tmp_path, range(1, 4))

    said = capsys.readouterr().err
    assert said.count("tracker_stopped") == 1
    assert type(error).__name__ in said
    assert "look at the lines" in said
    assert [line[0] for line in tracker.lines].index(at) == len(tracker.lines) - 1


@pytest.mark.parametrize("at", ["start", "log", "finish"])
def test_a_call_that_hangs_is_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], at: str
) -> None:
    """After the limit, once; the thread that hangs is a daemon, so that the process can end."""
    free = threading.Event()
    tracker = Lines(0.3, **{at: lambda: free.wait(60) and None})
    began = time.monotonic()
    told(tracker, tmp_path, range(1, 4))
    took = time.monotonic() - began
    hanging = [thread for thread in threading.enumerate() if thread.name == "tracker-lines"]
    daemons = [thread.daemon for thread in hanging]
    free.set()
    for thread in hanging:
        thread.join()

    assert daemons == [True]
    assert took < 20
    assert capsys.readouterr().err.count("no answer in 0.3 s") == 1


def test_what_failed_is_not_counted_as_logged(tmp_path: Path) -> None:
    """After a resume the step that failed is logged."""
    told(Lines(log=_raise(OSError("full"))), tmp_path, range(1, 2))
    again = Lines()
    told(again, tmp_path, range(1, 2))

    assert ("log", 1, "reward/mean") in again.lines


def test_a_damaged_file_of_the_id_stops_the_tracker_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, with how to begin a new tracker run."""
    (tmp_path / "trackers").mkdir()
    (tmp_path / "trackers" / "lines.json").write_text("{", encoding="utf-8")
    tracker = Lines()
    told(tracker, tmp_path, range(1, 3))

    assert tracker.lines == []
    said = capsys.readouterr().err
    assert "tracker_stopped" in said
    assert "lines.json" in said


def test_a_missing_library_is_an_error_at_the_start() -> None:
    """With the extra to install."""

    class Missing(Lines):
        name = "trackio"
        module = "no_such_tracker"

    with pytest.raises(PrerequisiteError) as caught:
        Missing()
    assert "no_such_tracker" in str(caught.value)
    assert "rlvr-trackers" in str(caught.value)
    assert "[trackio]" in str(caught.value)


def test_a_full_disk_under_tensorboard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The kernel refuses to let the event file grow: one warning, no traceback of a thread."""
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    tracker = TensorBoard(TensorBoardOptions(), BuildContext())
    run = run_in(tmp_path)
    tracker.run_started(run=run)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    many = {f"metric/{number}": 1.0 for number in range(2000)}
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        tracker.step_finished(run=run, step=1, metrics=many)
        tracker.step_finished(run=run, step=2, metrics=many)
        tracker.run_finished(run=run, outcome="done")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    said = capsys.readouterr().err
    assert said.count("tracker_stopped") == 1
    assert "File too large" in said
    assert "Traceback" not in said
    assert tracker._events.closed


# --- the contract -------------------------------------------------------------------------------


class Contract(CallbackContract):
    """A failure would be silent: nothing may have stopped."""

    @pytest.fixture(autouse=True)
    def _never_stops(self, capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
        yield
        assert "tracker_stopped" not in capsys.readouterr().err


class TestTensorBoard(Contract):
    def make_callback(self, directory: Path) -> TensorBoard:
        pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
        return TensorBoard(TensorBoardOptions(), BuildContext(run_dir=directory))


class TestWandb(Contract):
    def make_callback(self, directory: Path) -> Tracker:
        pytest.importorskip("wandb", reason="wandb is not installed")
        from rlvr_trackers.wandb import Wandb, WandbOptions

        return Wandb(WandbOptions(mode="offline"), BuildContext(run_dir=directory))
