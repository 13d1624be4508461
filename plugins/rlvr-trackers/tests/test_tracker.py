"""The base of trackers: what is given to them, and what their failures cost."""

from __future__ import annotations

import errno
import gc
import importlib
import io
import itertools
import json
import os
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import MagicMock

import pytest
import structlog
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
from rlvr.testing import CallbackContract, PluginContract
from rlvr_trackers.entries import (
    HIDDEN,
    evaluation_numbers,
    public_config,
    recorded,
    table_rows,
)
from rlvr_trackers.mlflow import MLflow, MLflowOptions, _name
from rlvr_trackers.tensorboard import TensorBoard, TensorBoardOptions
from rlvr_trackers.tracker import Tracker, TrackerOptions
from rlvr_trackers.trackio import Trackio, TrackioOptions
from rlvr_trackers.wandb import Wandb, WandbOptions

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


@pytest.mark.parametrize(
    ("kept", "missed"), [(None, []), (9, []), (2, [3, 4, 4]), (-1, [1, 2, 3, 4, 4])]
)
def test_a_resumed_run_logs_what_the_tracker_lost_with_the_process(
    tmp_path: Path, kept: int | None, missed: list[int]
) -> None:
    """Each step that the tracker kept no entry of, once and in order, before the next step."""
    first, second = Lines(), Lines()
    told(first, tmp_path, range(1, 5), "interrupted")
    run, report = run_in(tmp_path), evaluated()
    first.run_started(run=run)
    first.evaluated(run=run, step=4, report=report)
    record(tmp_path, range(1, 5))
    second.kept = kept

    told(second, tmp_path, range(5, 6))

    assert [line[1] for line in second.lines if line[0] == "log"] == [*missed, 5]


def test_a_tracker_that_joins_a_resumed_run_gets_its_steps_so_far(tmp_path: Path) -> None:
    """Metrics, then the evaluation of each step."""
    record(tmp_path, range(1, 3))

    told(late := Lines(), tmp_path, range(3, 4))

    numbers = [line[1:3] for line in late.lines if line[0] == "log"]
    assert numbers[:2] == [(1, "reward/mean"), (2, "reward/mean")]
    assert [step for step, _ in numbers] == [1, 2, 2, 3]
    assert numbers[2][1].startswith("eval/")


def test_an_evaluation_is_logged_with_the_numbers_of_the_run_directory(tmp_path: Path) -> None:
    """Whether it is told or read again."""
    record(tmp_path, range(1, 2))

    (*_, (_, _, numbers)) = recorded(tmp_path)

    assert numbers == evaluation_numbers(evaluated())
    assert (numbers["eval/pass1"], numbers["eval/seconds"]) == (1.0, 0.25)


def test_offline_files_that_cannot_be_read_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What wandb lacks is not known then: nothing is logged again, and a person can look."""
    (tmp_path / "wandb" / "offline-run-1-x").mkdir(parents=True)
    (tmp_path / "wandb" / "offline-run-1-x" / "run-x.wandb").mkdir()
    run = SimpleNamespace(id="x", offline=True)
    tracker: Any = SimpleNamespace(_folder=tmp_path, _run=run)
    monkeypatch.setenv("A_TOKEN", "offline-run")

    with structlog.testing.capture_logs() as lines:
        assert Wandb.reached(tracker) is None

    assert [line["event"] for line in lines] == ["wandb_files_not_read"]
    assert f"{HIDDEN}-1-x" in lines[0]["reason"]


def test_a_run_that_wandb_goes_on_with_has_the_step_before_its_counter() -> None:
    """0 where the server has nothing of it."""
    for counter in (0, 5):
        run = SimpleNamespace(step=counter, offline=False)
        tracker: Any = SimpleNamespace(_run=run)
        assert Wandb.reached(tracker) == counter - 1


def test_a_tracker_can_ask_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question finds no terminal and no answer: it does not wait, nor hold the process's end."""
    asked, typed = [], io.StringIO("yes")
    monkeypatch.setattr(sys, "stdin", typed)
    tracker = Lines(start=lambda: asked.extend([sys.stdin.isatty(), sys.stdin.read()]))

    tracker.run_started(run=run_in(tmp_path))

    assert asked == [False, ""]
    assert sys.stdin is typed


def test_trackers_of_runs_in_threads_give_the_streams_back(tmp_path: Path) -> None:
    """The call that began first ends first: the other one's "before" is no stream of ours."""
    before, begun = (sys.stdin, sys.stdout), threading.Event()

    def first() -> None:
        begun.set()
        time.sleep(0.1)

    trackers = Lines(start=first), Lines(start=lambda: time.sleep(0.2))
    threads = [
        threading.Thread(target=tracker.run_started, args=(run_in(tmp_path),))
        for tracker in trackers
    ]
    threads[0].start()
    assert begun.wait(10)
    threads[1].start()
    for thread in threads:
        thread.join(10)

    assert (sys.stdin, sys.stdout) == before


@pytest.mark.parametrize(("before", "seen"), [(None, "false"), ("true", "true")])
def test_a_library_reports_nothing_to_its_makers_unless_a_person_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None, seen: str
) -> None:
    """Its variable is set while it starts, and left as it was."""
    monkeypatch.delenv("LINES_REPORTS", raising=False)
    if before is not None:
        monkeypatch.setenv("LINES_REPORTS", before)
    found: list[str | None] = []
    tracker = Lines(start=lambda: found.append(os.environ.get("LINES_REPORTS")))
    tracker.reports = ("LINES_REPORTS", "false")  # type: ignore[misc]  # a class's, of one here

    tracker.run_started(run=run_in(tmp_path))

    assert found == [seen]
    assert os.environ.get("LINES_REPORTS") == before


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
        (
            "x.hub",
            {"accessToken": "t", "clientSecret": "s"},
            dict.fromkeys(("accessToken", "clientSecret"), HIDDEN),
        ),
        ("sampler.max_tokens", 64, 64),
        ("server.api_key", "", ""),
        ("sad.keyword", "verilog", "verilog"),
        ("server.api_key_env", "MY_KEY", "MY_KEY"),
        ("mlflow.uri", "https://me:pw@host:5000/a", f"https://{HIDDEN}@host:5000/a"),
        ("mlflow.uri", "https://me:p@ss@host/a", f"https://{HIDDEN}@host/a"),
        ("mlflow.uri", "postgresql://me:p/w@host/a", f"postgresql://{HIDDEN}@host/a"),
        ("mlflow.uri", "https://host:5000/users/@me", "https://host:5000/users/@me"),
        ("mlflow.uri", "http://h/x?pwd=abc&page=2", f"http://h/x?pwd={HIDDEN}&page=2"),
        ("a.folder", "runs/\udcff", "runs/?"),
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


def test_half_a_surrogate_pair_is_given_as_a_question_mark() -> None:
    """JSON may hold one, in an agent's log for instance; UTF-8 cannot."""
    segments = [Segment(author="policy", tokens=[1], logprobs=[-1.0], text="a\ud800b")]
    trajectory = Trajectory(problem_id="p", segments=segments)
    scored = evolve(group(), trajectories=[trajectory], outcomes=[Reward(value=0.5, score01=1.0)])

    (row,) = table_rows([scored], most=1, chars=9)

    assert row["prompt"] + row["answer"] == "a?b"


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
    """Nothing is logged after it, the tracker's run is closed; the warning says what to do."""
    tracker = Lines(**{at: _raise(error)})
    told(tracker, tmp_path, range(1, 4))

    said = capsys.readouterr().err
    assert said.count("tracker_stopped") == 1
    assert type(error).__name__ in said
    assert "look at the lines" in said
    names = [line[0] for line in tracker.lines]
    assert names[names.index(at) :] == list(dict.fromkeys([at, "finish"]))
    assert tracker.lines[-1] == ("finish", "done")


@pytest.mark.parametrize(
    "text",
    [
        "no answer of http://me:SECRET@host/x?token=SECRET/api/2.0",
        "Max retries exceeded with url: /x?a=1&token=SECRET/api&name=rlvr",
        "in header value: 'Bearer the-longer-SECRET\\n'",
        f"{'x' * 964} http://me:SECRET@host",  # a text is cut at 1000 characters
    ],
)
def test_a_failure_is_told_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Of URLs, whole or cut, and of the environment; what is no secret stays."""
    monkeypatch.setenv("A_TOKEN", "the-longer")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "the-longer-SECRET\n")
    monkeypatch.setenv("B_TOKEN", "folder")
    monkeypatch.setenv("PWD", "/a/folder")

    with structlog.testing.capture_logs() as lines:
        told(Lines(log=_raise(OSError(f"/a/folder {text}"))), tmp_path, range(1, 2))

    (line,) = lines
    assert "SECRET" not in line["found"]
    assert "/a/folder " in line["found"]


def test_what_a_tracker_prints_has_no_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On either stream; standard error is given back."""
    address, before = "sent to http://me:SECRET@host", sys.stderr

    def start() -> None:
        print(address)
        print(address, file=sys.stderr, flush=True)

    Lines(start=start).run_started(run=run_in(tmp_path))

    assert capsys.readouterr().err.count(f"sent to http://{HIDDEN}@host\n") == 2
    assert sys.stderr is before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_mlflow_tells_no_password_of_a_server_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the whole URI, and then its path alone."""
    pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    uri = "http://me:SECRET@127.0.0.1:9/x?token=SECRET"

    told(MLflow(MLflowOptions(uri=uri), BuildContext()), tmp_path, range(1, 2))

    said = capsys.readouterr().err
    assert "127.0.0.1" in said
    assert "SECRET" not in said


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
    assert tracker.lines[-1][0] == at, "nothing waits behind a call that hangs"
    assert took < 20
    assert capsys.readouterr().err.count("no answer in 0.3 s") == 1


def test_a_run_says_where_it_was_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, without passwords, and not where it was not."""
    monkeypatch.setattr(Lines, "place", lambda self: "https://me:secret@host/runs")
    told(Lines(), tmp_path, range(1, 2))
    said = capsys.readouterr().err
    assert re.findall('"lines", "see": "https://<hidden>@host/runs", "event": "run_tracked"', said)
    assert "secret" not in said

    told(Lines(finish=_raise(OSError("disk"))), tmp_path, range(1, 2))
    told(Lines(log=_raise(OSError("disk"))), tmp_path / "x", range(1, 2))
    assert "run_tracked" not in capsys.readouterr().err


def test_what_failed_is_not_counted_as_logged(tmp_path: Path) -> None:
    """After a resume the step that failed is logged."""
    told(Lines(log=_raise(OSError("full"))), tmp_path, range(1, 2))
    again = Lines()
    told(again, tmp_path, range(1, 2))

    assert ("log", 1, "reward/mean") in again.lines


def told_after(text: str, tmp_path: Path) -> list[Any]:
    """What is told a tracker whose file of the id holds this text."""
    (tmp_path / "trackers").mkdir()
    (tmp_path / "trackers" / "lines.json").write_text(text, encoding="utf-8")
    tracker = Lines()
    told(tracker, tmp_path, range(1, 3))
    return tracker.lines


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "null", "[" * 100_000, '{"id": 5}', '{"id": null}'),
        *('{"last": []}', '{"last": null}', '{"last": {"metrics": "x"}}'),
        *('{"last": {"metrics": null}}', '{"places": []}', '{"places": {"": 5}}'),
    ],
    ids=lambda text: text[:30],
)
def test_a_damaged_file_of_the_id_stops_the_tracker_alone(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named once, with how to begin a new tracker run."""
    assert told_after(text, tmp_path) == []
    said = capsys.readouterr().err
    assert said.count("tracker_stopped") == 1
    assert "lines.json" in said


def test_a_damaged_file_of_trackio_refuses_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read before the run's first start, which tells of it."""
    monkeypatch.setenv("TRACKIO_DIR", "logs")
    (tmp_path / "trackers").mkdir()
    (tmp_path / "trackers" / "trackio.json").write_text("[" * 100_000, encoding="utf-8")
    tracker = type("Fake", (Trackio,), {"module": "json"})

    tracker(TrackioOptions(), BuildContext(run_dir=tmp_path))

    assert os.environ["TRACKIO_DIR"] == "logs"


def test_a_file_of_the_id_without_steps_is_read(tmp_path: Path) -> None:
    """As a person may write one, to go on in a run of the tracker."""
    lines = told_after('{"id": "mine"}', tmp_path)
    assert lines[0] == ("start", "mine")
    assert ("log", 1, "reward/mean") in lines


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
    del tracker
    gc.collect()  # a file that is still open is a warning, which is an error


def test_runs_of_one_name_have_folders_of_their_own(tmp_path: Path) -> None:
    """Below `tensorboard.folder`; a resumed run goes on in that of before."""
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    options = TensorBoardOptions(folder=str(tmp_path / "all"))
    for place in ("one", "two", "one"):
        (tmp_path / place).mkdir(exist_ok=True)
        told(TensorBoard(options, BuildContext()), tmp_path / place, range(1, 2))

    kept = [json.loads((tmp_path / n / "trackers/tensorboard.json").read_text("utf-8"))["id"]
            for n in ("one", "two")]  # fmt: skip
    assert kept == [str(tmp_path / "all" / name) for name in ("r1", "r1-2")]
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["r1", "r1-2"]


# sqlalchemy 2.1 deprecates what MLflow calls
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_mlflow_takes_every_name() -> None:
    """Whatever a plugin calls its metrics; the names of our own stay."""
    validation = pytest.importorskip("mlflow.utils.validation", reason="MLflow is not installed")
    odd = [("a",) * 300, *(n for k in range(5) for n in itertools.product("a./@", repeat=k))]
    for name in map("".join, odd):
        validation._validate_metric_name(_name(name))
    for name in ("reward/mean", "eval/pass_at/1", "a.b-c d"):
        assert _name(name) == name


def test_mlflow_reports_nothing_to_its_makers() -> None:
    """Importing it would start a thread that does, and set a variable; here it does neither."""
    pytest.importorskip("mlflow", reason="MLflow is not installed")
    code = """
import os, threading
before = dict(os.environ)
from rlvr import BuildContext
from rlvr_trackers.mlflow import MLflow, MLflowOptions
MLflow(MLflowOptions(), BuildContext())
from mlflow.telemetry import get_telemetry_client
print(get_telemetry_client(), os.environ == before)
"""
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}  # no CI's
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip

    assert done.stdout.splitlines()[-1:] == ["None True"], done.stderr


def test_wandb_reports_nothing_to_its_makers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its service, which would, is started by what `start` calls."""
    env = pytest.importorskip("wandb.env", reason="wandb is not installed")
    monkeypatch.delenv("WANDB_ERROR_REPORTING", raising=False)
    tracker, seen = Wandb(WandbOptions(mode="offline"), BuildContext()), list[bool]()
    monkeypatch.setattr(tracker, "start", lambda *_: seen.append(env.error_reporting_enabled()))

    tracker.run_started(run=run_in(tmp_path))

    assert seen == [False]
    assert env.error_reporting_enabled()


@pytest.mark.slow
def test_wandb_keeps_to_the_mode_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clusters set it for all jobs; the option is the later word."""
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    tracker = Wandb(WandbOptions(), BuildContext())

    tracker.run_started(run=run_in(tmp_path))
    tracker.step_finished(run=run_in(tmp_path), step=1, metrics={"loss": 1.0})
    assert tracker.reached() in (-1, 1)  # of files, which wandb writes in time; its counter: 0
    tracker.run_finished(run=run_in(tmp_path), outcome="done")

    assert [*tmp_path.glob("trackers/wandb/offline-run-*/*.wandb")]
    assert json.loads((tmp_path / "trackers/wandb.json").read_text())["last"] == {"metrics": 1}


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    """An error of the system says what is wrong with which file."""
    (tmp_path / "trackers").write_text("")

    with structlog.testing.capture_logs() as lines:
        Lines().run_started(run=run_in(tmp_path))

    assert f"FileExistsError: [Errno 17] File exists: '{tmp_path}/trackers'" in lines[0]["found"]


def without_library(tracker: type[Tracker], options: Any) -> Any:
    """The tracker, whose library is not imported."""
    return type("Fake", (tracker,), {"module": "json"})(options, BuildContext())


class _Client:
    """Of MLflow: notes where it was opened, and how many are at work on one new file."""

    opened: ClassVar[list[str]] = []
    at_work: ClassVar[set[int]] = set()
    most_at_work: ClassVar[int] = 0

    def __init__(self, tracking_uri: str) -> None:
        self.opened.append(tracking_uri)

    def get_experiment_by_name(self, _name: str) -> Any:
        self.at_work.add(threading.get_ident())
        type(self).most_at_work = max(self.most_at_work, len(self.at_work))
        time.sleep(0.05)
        self.at_work.remove(threading.get_ident())
        return SimpleNamespace(experiment_id="0")

    def create_run(self, _number: str, run_name: str) -> Any:
        return SimpleNamespace(info=SimpleNamespace(run_id=run_name))

    def __getattr__(self, _name: str) -> Any:
        return lambda *given, **named: None


class _FakeMLflow(MLflow):
    module = "json"

    def __init__(self, uri: str) -> None:
        pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
        super().__init__(MLflowOptions(uri=uri), BuildContext())
        entities = SimpleNamespace(Param=lambda *_: None, Metric=lambda *_: None)
        self.library = SimpleNamespace(MlflowClient=_Client, entities=entities)


def test_runs_that_begin_at_once_make_the_tables_of_mlflow_one_after_the_other(
    tmp_path: Path,
) -> None:
    """MLflow's own processes break a new SQLite file otherwise."""
    trackers = [_FakeMLflow(f"sqlite:///{tmp_path}/new.db") for _ in range(3)]
    threads = []
    for number, tracker in enumerate(trackers):
        run = run_in(tmp_path / str(number))
        run.directory.mkdir()
        threads.append(threading.Thread(target=tracker.start, args=(run, {}, "")))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(_Client.opened) >= 3
    assert _Client.most_at_work == 1


def test_a_relative_place_is_that_of_the_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resume from another working folder goes on there; another option is another place."""
    folders = []
    for step, (cwd, folder) in enumerate([("one", "logs"), ("two", "logs"), ("two", "others")]):
        (tmp_path / cwd).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / cwd)
        told(_FakeMLflow(f"sqlite:///{folder}/m.db"), tmp_path, range(step, step + 1))
        tracker = without_library(Wandb, WandbOptions(folder=folder, mode="offline"))
        tracker.library = MagicMock()
        tracker.library.init.return_value.id = "id"
        monkeypatch.setattr(tracker, "reached", lambda: None)
        told(tracker, tmp_path, range(step, step + 1))
        folders.append(tracker.library.init.call_args.kwargs["dir"])

    wanted = [tmp_path / "one/logs", tmp_path / "one/logs", tmp_path / "two/others"]
    assert folders == [*map(str, wanted)]
    assert _Client.opened[-3:] == [f"sqlite:///{folder}/m.db" for folder in wanted]


def test_the_default_of_mlflow_is_that_of_the_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow's own is a file of the working folder, by what lies there; a server is none."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for step, (cwd, default) in enumerate([("one", "mlflow.db"), ("two", "mlruns/mlflow.db")]):
        (tmp_path / cwd).mkdir()
        monkeypatch.chdir(tmp_path / cwd)
        tracker = _FakeMLflow("")
        place = f"sqlite:///{Path.cwd()}/{default}"
        tracker.library.get_tracking_uri = lambda place=place: place
        told(tracker, tmp_path, range(step, step + 1))
    told(_FakeMLflow("databricks"), tmp_path, range(2, 3))
    told(_FakeMLflow("http://localhost:5000"), tmp_path, range(3, 4))

    wanted = [f"sqlite:///{tmp_path}/one/mlflow.db"] * 2
    assert _Client.opened[-4:] == [*wanted, "databricks", "http://localhost:5000"]


FOLDERS = {
    "wandb": (Wandb, WandbOptions(mode="offline"), "WANDB_DIR", "logs"),
    "tensorboard": (TensorBoard, TensorBoardOptions(folder="logs"), "", ""),
    "mlflow": (MLflow, MLflowOptions(), "MLFLOW_TRACKING_URI", "file:logs"),
}
"""Tracker, options, and the variable by which a person names a folder."""


@pytest.mark.parametrize("name", FOLDERS)
def test_a_relative_folder_of_a_real_tracker_is_that_of_the_first_start(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resume from another working folder leaves nothing there."""
    cls, options, variable, value = FOLDERS[name]
    pytest.importorskip(cls.module, reason=f"{name} is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    if variable:
        monkeypatch.setenv(variable, value)
    with structlog.testing.capture_logs() as lines:
        for step, cwd in enumerate(["one", "two"]):
            (tmp_path / cwd).mkdir()
            monkeypatch.chdir(tmp_path / cwd)
            told(cls(options, BuildContext()), tmp_path, range(step, step + 1))

    assert [line["event"] for line in lines] == ["run_tracked"] * 2
    assert [f"{tmp_path}/one/logs" in line["see"] for line in lines] == [True, True]
    assert any((tmp_path / "one" / "logs").iterdir())
    assert not any((tmp_path / "two").iterdir())


@pytest.mark.parametrize("uri", ["SQLite:///m.db", "sqlite+pysqlite:///m.db", "FILE:m.db", "m.db"])
def test_each_way_to_name_a_file_is_a_place_here(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schemes have no case, and SQLite several drivers."""
    monkeypatch.chdir(tmp_path)
    told(_FakeMLflow(uri), tmp_path, range(1))
    assert _Client.opened[-1] == uri.removesuffix("m.db").lower() + str(tmp_path / "m.db")


def file_of(uri: str) -> Path:
    """The file or folder that MLflow opens by a URI, and the folders that it makes for it."""
    if uri.startswith("sqlite"):
        importlib.import_module("mlflow.store.db.utils")._make_parent_dirs_if_sqlite(uri)
        return Path(importlib.import_module("sqlalchemy").make_url(uri).database).absolute()
    return Path(importlib.import_module("mlflow.utils.file_utils").local_file_uri_to_path(uri))


URIS = ["sqlite:///{}/m.db", "sqlite+pysqlite:///{}/m.db?timeout=9", "file:{}/m.db", "{}/m.db"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("folder", ["feature%2Fx", "my%20dir", "a?b#c %"])
@pytest.mark.parametrize("uri", ["", *(uri.format(".") for uri in URIS)])
def test_mlflow_opens_the_file_of_a_folder_of_any_name(
    uri: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As MLflow alone would there; a resume from another folder opens it again."""
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = tmp_path / "run"
    for step, cwd in enumerate([folder, "else"]):
        (tmp_path / cwd / "run").mkdir(parents=True)
        run.mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / cwd)
        tracker = _FakeMLflow(uri)
        tracker.library.get_tracking_uri = mlflow.get_tracking_uri
        told(tracker, run, range(step, step + 1))

    wanted = tmp_path / folder / ("m.db" if uri else "mlflow.db")
    assert [*map(file_of, _Client.opened[-2:])] == [wanted] * 2
    assert {path.name for path in tmp_path.iterdir()} == {folder, "else", "run"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("uri", [uri.format("~") for uri in URIS])
def test_mlflow_knows_a_home_of_any_name(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder called `~` would be hard to see and dangerous to remove."""
    pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.setenv("HOME", str(tmp_path / "my%20home"))
    monkeypatch.chdir(tmp_path)

    told(_FakeMLflow(uri), tmp_path, range(1))

    assert file_of(_Client.opened[-1]) == tmp_path / "my%20home" / "m.db"
    assert not (tmp_path / "~").exists()


def test_other_folders_below_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each tracker that has one: shells leave the `~` of `wandb.folder=~/logs`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRACKIO_DIR", "~/logs")
    board = without_library(TensorBoard, TensorBoardOptions(folder="~/logs"))
    wandb = without_library(Wandb, WandbOptions(folder="~/logs", mode="offline"))
    mlflow = without_library(MLflow, MLflowOptions(uri="http://host", artifacts="~/logs"))
    for tracker in (board, wandb, mlflow):
        tracker.library = MagicMock()
    monkeypatch.setattr(board, "_write", lambda *_, **__: None)
    mlflow.library.MlflowClient().get_experiment_by_name.return_value = None
    seen: list[Any] = [board.start(run_in(tmp_path), {}, "")]
    wandb.start(run_in(tmp_path), {}, "")
    seen.append(wandb.library.init.call_args.kwargs["dir"])
    mlflow.start(run_in(tmp_path), {}, "")
    made = mlflow.library.MlflowClient().create_experiment.call_args
    seen.append(made.kwargs["artifact_location"])
    with monkeypatch.context() as patch:
        patch.setattr(Tracker, "__init__", lambda *_: seen.append(os.environ["TRACKIO_DIR"]))
        Trackio(TrackioOptions(), BuildContext())

    assert seen == [f"{tmp_path}/logs/r1", *[f"{tmp_path}/logs"] * 3]


@pytest.mark.parametrize("uri", ["sqlite:///:memory:", "sqlite://", "SQLite+pysqlite:///"])
def test_a_database_in_memory_is_refused_in_words(uri: str, tmp_path: Path) -> None:
    """Each call has its own thread, and so would have a database of its own."""
    before = len(_Client.opened)

    with structlog.testing.capture_logs() as lines:
        told(_FakeMLflow(uri), tmp_path, range(1))

    assert [line["event"] for line in lines] == ["tracker_stopped"]
    assert "in memory" in lines[0]["found"]
    assert len(_Client.opened) == before


@pytest.mark.parametrize("name", ["wandb", "tensorboard", "mlflow", "trackio"])
def test_a_place_that_cannot_be_written_is_said_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the library's words only, after a minute, or with the files in another place."""
    taken = tmp_path / "taken"
    taken.touch()
    for variable in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(variable, raising=False)
    tracker = {
        "wandb": lambda: without_library(Wandb, WandbOptions(folder=f"{taken}/logs")),
        "tensorboard": lambda: without_library(
            TensorBoard, TensorBoardOptions(folder=f"{taken}/logs")
        ),
        "mlflow": lambda: _FakeMLflow(f"sqlite:///{taken}/logs/m.db"),
        "trackio": lambda: without_library(Trackio, TrackioOptions()),
    }[name]()
    if name != "mlflow":
        tracker.library = MagicMock()
        tracker.library.utils.TRACKIO_DIR = taken

    with structlog.testing.capture_logs() as lines:
        told(tracker, tmp_path, range(1, 3))

    (line,) = lines
    assert (line["event"], line["at"]) == ("tracker_stopped", "start")
    assert str(taken) in line["found"]


def test_what_the_thread_of_trackio_could_not_write_stops_it(tmp_path: Path) -> None:
    """A disk that is full later: trackio warns in its own words alone, and goes on."""
    tracker = without_library(Trackio, TrackioOptions())
    failed: set[str] = set()
    run = SimpleNamespace(
        log=lambda *_, **__: failed.add("write-logs-to-sqlite"),
        finish=lambda: None,
        _warned_failures=failed,
    )
    tracker.library = SimpleNamespace(
        init=lambda *_, **__: run, utils=SimpleNamespace(TRACKIO_DIR=tmp_path)
    )
    with structlog.testing.capture_logs() as lines:
        told(tracker, tmp_path, range(2, 4))

    assert [(line["event"], line["at"]) for line in lines] == [("tracker_stopped", "metrics")]
    assert "trackio could not write" in lines[0]["found"]


@pytest.mark.parametrize(
    ("options", "variable", "place"),
    [
        ({}, ("TRACKIO_SERVER_URL", "http://h"), "http://h"),
        ({"url": "http://h"}, ("TRACKIO_SPACE_ID", "me/s"), "me/s"),
        ({"url": "http://h"}, ("TRACKIO_SERVER_URL", "http://other"), "http://h"),
        ({"project": "a b"}, ("TRACKIO_DIR", ""), "trackio show --project 'a b'"),
    ],
)
def test_a_run_of_trackio_is_said_to_be_where_trackio_sends_it(
    options: dict[str, str],
    variable: tuple[str, str],
    place: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the option or its variable; a Space is preferred to a server."""
    for name in ("TRACKIO_DIR", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(*variable)
    tracker = without_library(Trackio, TrackioOptions(**options))
    tracker._name = "r1-abc"

    assert tracker.place() == f"{place}  # run r1-abc"


def test_what_a_server_of_trackio_did_not_take_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trackio keeps it here: the run is not said to be there. It prints the server's address."""
    trackio = pytest.importorskip("trackio", reason="trackio is not installed")
    for name, module in list(sys.modules.items()):
        if name.startswith("trackio") and hasattr(module, "TRACKIO_DIR"):
            monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "kept")
    url = "http://me:SECRET@127.0.0.1:9/?write_token=SECRET"
    tracker = Trackio(TrackioOptions(url=url), BuildContext())

    with structlog.testing.capture_logs() as lines:
        told(tracker, tmp_path, range(1, 2))

    assert [(line["event"], line["at"]) for line in lines] == [("tracker_stopped", "finish")]
    assert f"keeps the rest in {tmp_path}/kept" in lines[0]["found"]
    assert trackio.sqlite_storage.SQLiteStorage.has_pending_data("rlvr")
    said = capsys.readouterr().err
    assert f"{HIDDEN}@127.0.0.1" in said
    assert "SECRET" not in said


def trackio_told(directory: Path, step: int, cwd: Path, folder: str) -> str:
    """What trackio and its callback say of a step, in a process: TRACKIO_DIR is read once in it."""
    code = f"""
from pathlib import Path
from rlvr import BuildContext, RunInfo
from rlvr_trackers.trackio import Trackio, TrackioOptions
run = RunInfo(id="r1", directory=Path({str(directory)!r}), plugin="toy", algo="grpo", model="m",
              steps=9, seed=1)
tracker = Trackio(TrackioOptions(), BuildContext(run_dir=run.directory))
tracker.run_started(run=run)
tracker.step_finished(run=run, step={step}, metrics={{"loss": 0.5}})
tracker.run_finished(run=run, outcome="done")
"""
    env = {**os.environ, "TRACKIO_DIR": folder, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=env, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert "tracker_stopped" not in done.stdout + done.stderr
    return done.stdout + done.stderr


def trackio_steps(folder: Path) -> list[int]:
    with closing(sqlite3.connect(folder / "rlvr.db")) as base:
        return [s for (s,) in base.execute("SELECT step FROM metrics ORDER BY id").fetchall()]


def test_trackio_goes_on_in_a_run_that_was_killed_before_it_sent_anything(tmp_path: Path) -> None:
    """Trackio does not know the run then; it gets the name of before, and the lost step."""
    pytest.importorskip("trackio", reason="trackio is not installed")
    (tmp_path / "trackers").mkdir()
    record(tmp_path, range(1, 2))
    kept = tmp_path / "trackers" / "trackio.json"
    last = {"metrics": 1, "evaluation": 1}
    kept.write_text(json.dumps({"id": "r1-abc", "last": last}), encoding="utf-8")

    trackio_told(tmp_path, 2, tmp_path, str(tmp_path))

    found = json.loads(kept.read_text("utf-8"))
    assert (found["id"], found["last"]) == ("r1-abc", {"metrics": 2, "evaluation": 1})
    assert trackio_steps(tmp_path) == [1, 1, 2]


def test_a_relative_folder_of_trackio_is_that_of_the_first_start(tmp_path: Path) -> None:
    """A resume from another working folder goes on there, and says how to show it."""
    pytest.importorskip("trackio", reason="trackio is not installed")
    for step, cwd in enumerate(["one", "two"], start=1):
        (tmp_path / cwd).mkdir()
        said = trackio_told(tmp_path, step, tmp_path / cwd, "logs")
        assert f"TRACKIO_DIR={tmp_path}/one/logs trackio show --project rlvr" in said

    assert trackio_steps(tmp_path / "one" / "logs") == [1, 2]
    assert not any((tmp_path / "two").iterdir())


def test_trackio_goes_on_in_no_other_place_than_it_began(tmp_path: Path) -> None:
    """It reads TRACKIO_DIR once in a process: where it is another one by then, that is said."""
    pytest.importorskip("trackio", reason="trackio is not installed")
    (tmp_path / "two" / "trackers").mkdir(parents=True)
    kept = {"id": "r1-abc", "last": {}, "places": {"logs": str(tmp_path / "before")}}
    (tmp_path / "two" / "trackers" / "trackio.json").write_text(json.dumps(kept))
    code = f"""
import os
from pathlib import Path
from rlvr import BuildContext, RunInfo
from rlvr_trackers.trackio import Trackio, TrackioOptions
for name in ("one", "two"):
    run = RunInfo(id=name, directory=Path({str(tmp_path)!r}) / name, plugin="toy", algo="grpo",
                  model="m", steps=9, seed=1)
    run.directory.mkdir(exist_ok=True)
    os.chdir(run.directory)
    tracker = Trackio(TrackioOptions(), BuildContext(run_dir=run.directory))
    tracker.run_started(run=run)
    tracker.step_finished(run=run, step=1, metrics={{"loss": 0.5}})
    tracker.run_finished(run=run, outcome="done")
"""
    env = {**os.environ, "TRACKIO_DIR": "logs", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert f"TRACKIO_DIR={tmp_path}/one/logs trackio show" in said
    assert "process of its own" in said
    assert trackio_steps(tmp_path / "one" / "logs") == [1]
    assert not (tmp_path / "two" / "logs").exists()


# --- the contract -------------------------------------------------------------------------------


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


class TestTrackio(Contract):
    @pytest.fixture(autouse=True)
    def _here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Trackio reads TRACKIO_DIR when it is imported."""
        pytest.importorskip("trackio", reason="trackio is not installed")
        for name, module in list(sys.modules.items()):
            if name.startswith("trackio") and hasattr(module, "TRACKIO_DIR"):
                monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "kept")

    def make_callback(self, directory: Path) -> Tracker:
        return Trackio(TrackioOptions(), BuildContext(run_dir=directory))


class TestWandb(Contract):
    def make_callback(self, directory: Path) -> Tracker:
        pytest.importorskip("wandb", reason="wandb is not installed")
        return Wandb(WandbOptions(mode="offline"), BuildContext(run_dir=directory))
