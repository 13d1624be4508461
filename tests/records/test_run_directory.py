"""Files of a run: atomic, readable after a crash, cut back on resume."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from rlvr import ConfigError, Problem, Reward, ScoredGroup, Segment, Trajectory, UnknownNameError
from rlvr.cli.rescore import _rescore
from rlvr.records.read_runs import seen_from_here
from rlvr.records.run_directory import RunDir, check_writable, write_atomic
from rlvr.records.trajectories import trajectory_from_json
from rlvr.verification.verdict import outcome_from_json, outcome_to_json

TRAJECTORY = Trajectory(
    problem_id="p",
    segments=[
        Segment(author="prompt", tokens=[1, 2], text="say"),
        Segment(author="policy", tokens=[3], logprobs=[-0.25], text="x"),
    ],
    finish="length",
    seed=np.int64(7),  # of a generator: JSON knows no such number
    policy_version=3,
    policy_digest="abc",
)
REWARD = Reward(value=0.5, score01=0.0, components={"format": 1.0}, tests_passed=1, tests_total=2)


def test_trajectories_come_back_as_they_went(tmp_path: Path) -> None:
    """`rlvr rescore` judges exactly what was sampled."""
    directory = RunDir.create(tmp_path / "run")
    group = ScoredGroup(
        problem=Problem(id="p", prompt=()), trajectories=[TRAJECTORY], outcomes=[REWARD]
    )
    directory.write_trajectories("step", 2, [group])

    (line,) = directory.read_lines("trajectories/step-000002.jsonl")

    assert trajectory_from_json(line) == TRAJECTORY
    assert outcome_from_json(line["outcome"], cached=False) == REWARD


def test_outcomes_survive_json() -> None:
    """The verdict store gives back what was put in, marked as cached and free."""
    again = outcome_from_json(json.loads(json.dumps(outcome_to_json(REWARD))), cached=True)

    assert isinstance(again, Reward)
    assert (again.value, again.components, again.cached) == (0.5, {"format": 1.0}, True)


def test_a_half_written_line_is_passed_over(tmp_path: Path) -> None:
    """A crash in the middle of a line costs that line only."""
    directory = RunDir.create(tmp_path / "run")
    directory.append("metrics.jsonl", {"step": 1})
    with (directory.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "rew')

    assert directory.read_lines("metrics.jsonl") == [{"step": 1}]


def test_resume_forgets_what_it_will_write_again(tmp_path: Path) -> None:
    """Nothing appears twice in a resumed run."""
    directory = RunDir.create(tmp_path / "run")
    for step in (1, 2, 3):
        directory.append("metrics.jsonl", {"step": step})
        directory.write_trajectories("step", step, [])

    directory.truncate_after(2)

    assert [r["step"] for r in directory.read_lines("metrics.jsonl")] == [1, 2]
    assert [p.name for p in directory.trajectory_files()] == [
        "step-000001.jsonl",
        "step-000002.jsonl",
    ]


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    """`--out` of an existing run is refused, and `--resume` is named."""
    RunDir.create(tmp_path / "run").write_run({"id": "run"})

    with pytest.raises(ConfigError, match="--resume"):
        RunDir.create(tmp_path / "run")
    with pytest.raises(UnknownNameError, match=r"no run\.json"):
        RunDir.open(tmp_path / "other")


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    """An unwritable place is a person's mistake, not a traceback."""
    (tmp_path / "file").write_text("x")

    with pytest.raises(ConfigError, match="cannot be written"):
        RunDir.create(tmp_path / "file" / "run")


def test_atomic_write_leaves_nothing_beside(tmp_path: Path) -> None:
    """The old file or the new one, and no third."""
    path = tmp_path / "run.json"
    write_atomic(path, "old")
    write_atomic(path, "new")

    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_a_record_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A damaged run.json is told as such, by every command that opens a run."""
    for text in ("{", "[1]", "{}"):
        (tmp_path / "run.json").write_text(text)

        with pytest.raises(ConfigError, match=r"run\.json cannot be read"):
            RunDir.open(tmp_path).read_run()


def test_results_never_replace_a_folder_or_a_device(tmp_path: Path) -> None:
    """`--out /dev/null` must not put a file in the place of the device."""
    os.mkfifo(tmp_path / "pipe")

    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConfigError, match="choose another file"):
            check_writable(path)


def test_a_link_is_written_through(tmp_path: Path) -> None:
    """A result file that is a link stays one."""
    (tmp_path / "link").symlink_to(tmp_path / "real")

    write_atomic(tmp_path / "link", "text")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "text"


def test_what_is_recorded_elsewhere_is_named_and_not_written_again(tmp_path: Path) -> None:
    """Its line tells it by id, window and digest, the same at every step, whatever its length."""
    directory = RunDir.create(tmp_path / "run")
    long = Trajectory(
        problem_id="p",
        segments=[
            Segment(author="prompt", tokens=range(999), text="say " * 999),
            Segment(author="policy", tokens=[3], logprobs=[0], text="x"),
        ],
        notes={"window": [0, 1000, 5000]},
    )
    other = attrs.evolve(long, segments=long.segments[::-1])
    group = ScoredGroup(
        problem=Problem(id="p", prompt=()), trajectories=[long, other], outcomes=[REWARD] * 2
    )
    for step in (1, 2):
        directory.write_trajectories("step", step, [group], are_recorded=True)

    first, second = directory.read_lines("trajectories/step-000001.jsonl")
    assert (first["id"], first["notes"]) == ("p", {"window": [0, 1000, 5000]})
    assert (first["recorded"]["tokens"], first["recorded"]["learnt"]) == (1000, 1)
    assert "segments" not in first
    assert len(json.dumps(first)) < 600
    assert first["recorded"]["digest"] != second["recorded"]["digest"]
    again, _ = directory.read_lines("trajectories/step-000002.jsonl")
    assert again == {**first, "step": 2}


def test_recordings_are_not_scored_again(tmp_path: Path) -> None:
    """`rlvr rescore` of a run that replayed says that there is nothing to judge, and why."""
    directory = RunDir.create(tmp_path / "run")
    group = ScoredGroup(
        problem=Problem(id="p", prompt=()), trajectories=[TRAJECTORY], outcomes=[REWARD]
    )
    directory.write_trajectories("step", 1, [group], are_recorded=True)
    nothing: Any = None

    with pytest.raises(ConfigError, match="replayed from recordings"):
        asyncio.run(_rescore(nothing, directory))


def test_paths_of_a_run_lead_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not here is looked for where the run lies; all else stays as it was recorded."""
    (tmp_path / "runs/a/model").mkdir(parents=True)
    (tmp_path / "sub/of").mkdir(parents=True)
    kept = {"x.digest": "a/b", "run.model": "hf:org/name", "run.steps": 3, "y.url": "http://h/a"}
    config = {**kept, "run.dataset": "runs/a", "other.teacher": "gpt2:runs/a/model"}
    led = {"run.dataset": f"{tmp_path}/runs/a", "other.teacher": f"gpt2:{tmp_path}/runs/a/model"}
    monkeypatch.chdir(tmp_path)
    assert seen_from_here(Path("runs/b"), config) == config
    monkeypatch.chdir(tmp_path / "sub/of")
    assert seen_from_here(Path("../../runs/b"), config) == {**kept, **led}
    assert seen_from_here(tmp_path / "runs/b", kept | led) == kept | led
