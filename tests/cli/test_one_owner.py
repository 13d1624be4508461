"""Two processes never write one run: the second one is refused and told who is first."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rlvr_process import Started, start_rlvr

from rlvr.records.owner import owned
from tests.conftest import LEAN

pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed: pip install rlvr-algos")

pytestmark = pytest.mark.integration

Done = subprocess.CompletedProcess[str]
Call = Callable[..., Done]
TOY = ("run", "--plugin", "toy", "eval.samples=0")


def start(folder: Path, *words: str) -> Started:
    """A command in a process of its own, in `folder`."""
    env = {**os.environ, **LEAN, "RLVR_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    return start_rlvr(*words, cwd=folder, env=env)


def at_once(folder: Path, *words: str, count: int = 3) -> list[Done]:
    """The same command so many times at the same moment: what each of them said."""
    all_of_them = [start(folder, *words) for _ in range(count)]
    said = [process.communicate(timeout=240) for process in all_of_them]
    return [
        subprocess.CompletedProcess(p.args, p.returncode, *texts)
        for p, texts in zip(all_of_them, said, strict=True)
    ]


def steps(run: Path) -> list[int]:
    """The steps in a run's metrics, in their order."""
    return [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def check_one_won(all_of_them: Sequence[Done]) -> None:
    """One did it; the others ended with 2 and a message, and no traceback."""
    assert sorted(done.returncode for done in all_of_them) == [0, *[2] * (len(all_of_them) - 1)], [
        done.stderr for done in all_of_them
    ]
    for done in all_of_them:
        assert "Traceback" not in done.stderr


def test_of_resumes_at_once_one_goes_on(begun: Path, tmp_path: Path) -> None:
    """Each step is written once, and the others name the one that writes."""
    all_of_them = at_once(tmp_path, "run", "--resume", "r", "--steps", "15", count=2)

    check_one_won(all_of_them)
    assert steps(begun) == list(range(1, 16))
    assert all("is still at it" in done.stderr for done in all_of_them if done.returncode)


def test_of_fresh_runs_at_once_one_gets_the_directory(tmp_path: Path) -> None:
    """The others have written nothing into it."""
    all_of_them = at_once(tmp_path, *TOY, "--steps", "10", "--out", "r")

    check_one_won(all_of_them)
    assert steps(tmp_path / "r") == list(range(1, 11))
    events = [
        json.loads(x)["event"] for x in (tmp_path / "r/events.jsonl").read_text().splitlines()
    ]
    assert events.count("run_started") == 1


def test_runs_that_choose_their_own_directories_each_have_one(tmp_path: Path) -> None:
    """Also where they begin in the same second."""
    all_of_them = at_once(tmp_path, *TOY, "--steps", "2")

    assert [done.returncode for done in all_of_them] == [0, 0, 0]
    runs = list((tmp_path / "runs").iterdir())
    assert len(runs) == 3
    assert [steps(run) for run in runs] == [[1, 2]] * 3


def test_a_running_run_is_neither_resumed_nor_scored_into(rlvr: Call, begun: Path) -> None:
    """Resume, a fresh run on it, rescore, and an evaluation's output: each is refused (exit 2)."""
    with owned(begun):
        for words in (
            ("run", "--resume", "r"),
            (*TOY, "--out", "r"),
            ("rescore", "r"),
            ("score", "--plugin", "toy", "--golden", "--out", "r/scores.jsonl"),
            ("eval", "--run", "r", "--samples", "1", "--out", "r/trajectories/x.jsonl"),
            ("torch", "export", "r", "--out", "r/model"),
            ("torch", "export", "r", "--out=r"),
        ):
            refused = rlvr(*words)
            assert refused.returncode == 2, (words, refused.stderr)
            assert f"process {os.getpid()} on {os.uname().nodename}" in refused.stderr
        for words in (
            ("rescore", "r", "--out", "elsewhere.jsonl"),
            ("runs", "show", "r"),
            ("runs", "list", "."),
        ):
            read = rlvr(*words)
            assert read.returncode == 0, (words, read.stderr)
    assert not (begun / "rescored.jsonl").exists()


def test_no_command_replaces_what_a_run_has_written(rlvr: Call, begun: Path) -> None:
    """Not of a run that has ended either: every file that a run leaves is refused (exit 2)."""
    commands = (
        ("score", "--plugin", "toy", "--golden", "--out"),
        ("runs", "trace", "r", "--out"),
        ("torch", "export", "r", "--out"),
    )
    before = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
    names = sorted({path.relative_to(begun).parts[0] for path in before})
    assert {"run.json", "metrics.jsonl", "checkpoints"} <= set(names)
    for at, name in enumerate(names):  # every record, by one command or another
        refused = rlvr(*commands[at % len(commands)], f"r/{name}")
        assert refused.returncode == 2, (name, refused.stderr)
        assert "Traceback" not in refused.stderr
    for words in commands:
        refused = rlvr(*words, "r/checkpoints/new")
        assert (refused.returncode, "only its run writes" in refused.stderr) == (2, True), words
    after = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
    assert after == before


def test_auto_passes_over_a_run_that_is_running(rlvr: Call, begun: Path, tmp_path: Path) -> None:
    """It says so, and goes on with the next one that fits."""
    record = json.loads((begun / "run.json").read_text()) | {"status": "interrupted"}
    (begun / "run.json").write_text(json.dumps(record))
    shutil.move(begun, tmp_path / "runs" / "a")
    shutil.copytree(tmp_path / "runs" / "a", tmp_path / "runs" / "b")

    with owned(tmp_path / "runs" / "b"):
        done = rlvr(*TOY, "--resume", "auto", "--steps", "3")

    assert done.returncode == 0, done.stderr
    assert "passes over" in done.stderr
    assert str(os.getpid()) in done.stderr
    assert steps(tmp_path / "runs" / "a") == [1, 2, 3]
    assert steps(tmp_path / "runs" / "b") == [1]


def test_a_killed_run_is_resumed_though_its_id_is_used_again(
    rlvr: Call, begun: Path, tmp_path: Path
) -> None:
    """Who left it is said on standard error and in the log; a living process's id is no owner."""
    running = start(tmp_path, *TOY, "--out", "k", "--steps", "400")
    with contextlib.suppress(FileNotFoundError):
        while running.poll() is None and not (tmp_path / "k" / "metrics.jsonl").exists():
            time.sleep(0.05)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    for name in ("run.json", "owner.lock"):
        record = json.loads((tmp_path / "k" / name).read_text())
        assert record["pid"] == running.pid
        (tmp_path / "k" / name).write_text(json.dumps({**record, "pid": os.getpid()}))
    done_before = steps(tmp_path / "k")

    resumed = rlvr("run", "--resume", "k", "--steps", str(len(done_before) + 1))

    assert resumed.returncode == 0, resumed.stderr
    assert f"was left by process {os.getpid()}" in resumed.stderr
    assert steps(tmp_path / "k") == list(range(1, len(done_before) + 2))
    events = [json.loads(x) for x in (tmp_path / "k" / "events.jsonl").read_text().splitlines()]
    (said,) = [event for event in events if event["event"] == "dead_owner_replaced"]
    assert (said["pid"], said["why"]) == (os.getpid(), "its lock is free")


def test_a_run_that_ends_is_free(rlvr: Call, begun: Path) -> None:
    """Resumed after it ended well, there is nobody to be replaced."""
    resumed = rlvr("run", "--resume", "r", "--steps", "2")

    assert resumed.returncode == 0, resumed.stderr
    assert "takes it over" not in resumed.stderr
    assert (begun / "owner.lock").read_text() == ""
