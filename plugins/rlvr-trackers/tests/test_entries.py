"""What is given to trackers: each entry once, also after a resume; numbers, names and rows."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from attrs import evolve
from tracker_fixture import Lines, evaluated, group, record, run_in, told

from rlvr import BuildContext, EvalReport, Failed, Reward, Segment, Trajectory
from rlvr_trackers.entries import HIDDEN, evaluation_numbers, recorded, table_rows
from rlvr_trackers.mlflow import MLflow, MLflowOptions, _file_name, _name
from rlvr_trackers.wandb import Wandb


def test_each_kind_of_entry_is_logged_once_whatever_is_repeated(tmp_path: Path) -> None:
    """Steps 1-12, then a resume that repeats 11 and 12: the second run logs 13 only, same id."""
    first, second = Lines(), Lines()
    told(first, tmp_path, range(1, 13), "interrupted")
    told(second, tmp_path, range(11, 14))

    tables = [line for line in first.lines if line[0] == "table"]
    assert tables == [("table", 1, 1), ("table", 11, 1)]
    assert second.lines == [("start", "new"), ("log", 13, "reward/mean"), ("finish", "done")]


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


# sqlalchemy 2.1 deprecates what MLflow calls
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_mlflow_takes_every_name() -> None:
    """Whatever a plugin calls its metrics; the names of our own stay."""
    validation = pytest.importorskip("mlflow.utils.validation", reason="MLflow is not installed")
    odd = [("a",) * 300, *(n for k in range(5) for n in itertools.product("a./@", repeat=k))]
    clean = {_name("".join(letters)) for letters in odd}
    files = {_file_name(name) for name in clean}
    assert len(files) == len(clean)  # no two become one
    for name in clean | files:
        validation._validate_metric_name(name)
    for name in ("reward/mean", "eval/pass_at/1", "a.b-c d"):
        assert _name(name) == name
    assert _file_name("eval/pass_at/1") == "eval.pass_at.1"


def test_mlflow_keeps_every_name_apart_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file for each, where a part of a name is itself a name: in any order, after a resume."""
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri, run = str(tmp_path / "store"), run_in(tmp_path)
    steps = [
        *(["a", "a/b/c", "x/y.z", "x.y/z"], ["a/b", "a.b", "a..b", "a./b"]),
        *(["x", "a/b/c/d", "/", "p" * 300], ["x/y", "x.y", "a", "x./y", "x.", "x/./y"]),
    ]
    with structlog.testing.capture_logs() as lines:
        for began in (1, 3):
            tracker = MLflow(MLflowOptions(uri=uri), BuildContext())
            tracker.run_started(run=run)
            for step in (began, began + 1):
                metrics = {name: step + n / 8 for n, name in enumerate(steps[step - 1])}
                tracker.step_finished(run=run, step=step, metrics=metrics)
            tracker.run_finished(run=run, outcome="done")

    assert [line["event"] for line in lines] == ["run_tracked"] * 2
    client, own = mlflow.MlflowClient(tracking_uri=uri), tracker._kept["id"]
    found = [
        [(entry.step, entry.value) for entry in client.get_metric_history(own, name)]
        for name in client.get_run(own).data.metrics
    ]
    wanted: dict[str, list[tuple[int, float]]] = {}
    for step, names in enumerate(steps, 1):
        for n, name in enumerate(names):
            wanted.setdefault(name, []).append((step, step + n / 8))
    assert sorted(found) == sorted(wanted.values())


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
