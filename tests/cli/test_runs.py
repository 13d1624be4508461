"""`rlvr runs`: what is read from run directories, also damaged ones."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest

from rlvr.cli.main import main
from rlvr.records.owner import _record

RECORD = {
    "id": "one",
    "created": "2025-01-02T03:04:05+00:00",
    "status": "done",
    "plugin": "toy",
    "algo": "grpo",
    "model": "starter",
    "steps": 2,
    "seed": 7,
    "config": {"train.lr": 0.1},
    "versions": {"rlvr": "0.1.0"},
    "dataset_hash": "abc",
}


@pytest.fixture
def runs(plugin_site):
    """A site whose runs/ holds one finished run."""
    path = plugin_site.home / "runs" / "one"
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps(RECORD), encoding="utf-8")
    steps = [{"step": 1, "reward/mean": 0.25}, {"step": 2, "reward/mean": 0.5}]
    (path / "metrics.jsonl").write_text(
        "".join(json.dumps(s) + "\n" for s in steps), encoding="utf-8"
    )
    evaluation = {"step": 2, "split": "test", "pass1": 0.75, "low": 0.6, "high": 0.9}
    (path / "eval.jsonl").write_text(json.dumps(evaluation) + "\n", encoding="utf-8")
    return plugin_site


def test_list(runs):
    """One line a run: how far it got and how well it does."""
    (run,) = json.loads(runs.rlvr("runs", "list", "--json").stdout)
    header, row = runs.rlvr("runs", "list").stdout.splitlines()

    assert (run["id"], run["step"], run["steps"]) == ("one", 2, 2)
    assert (run["reward"], run["pass1"]) == (0.5, 0.75)
    assert header.split()[:5] == ["RUN", "STATUS", "PLUGIN", "ALGO", "STEPS"]
    assert row.split()[:6] == ["one", "done", "toy", "grpo", "2/2", "7"]


def test_list_of_nothing(plugin_site):
    """No runs yet is no error; a folder that was named and is missing is one."""
    assert plugin_site.rlvr("runs", "list", "--json").stdout == "[]\n"
    assert "rlvr runs list DIR" in plugin_site.rlvr("runs", "list").stderr
    assert plugin_site.rlvr("runs", "list", "elsewhere").returncode == 2


def test_a_damaged_run_hides_no_other(runs):
    """It is listed as unreadable, with the reason on standard error."""
    path = runs.home / "runs" / "two"
    path.mkdir()
    (path / "run.json").write_text("{", encoding="utf-8")

    done = runs.rlvr("runs", "list", "--json")

    assert done.returncode == 0
    assert {r["id"]: r["status"] for r in json.loads(done.stdout)} == {
        "one": "done",
        "two": "unreadable",
    }
    assert "run.json cannot be read" in done.stderr


@pytest.mark.parametrize("name", ["one", "runs/one"])
def test_show(runs, name):
    """By path or by name below runs/: everything as JSON, the essence as text."""
    shown = json.loads(runs.rlvr("runs", "show", name, "--json").stdout)
    text = runs.rlvr("runs", "show", name).stdout

    assert shown["config"] == {"train.lr": 0.1}
    assert [m["reward/mean"] for m in shown["metrics"]] == [0.25, 0.5]
    assert "0.6 .. 0.9" in text
    assert "dataset_hash: abc" in text


def test_show_draws_the_curves(runs):
    """The metrics that the run has; a run without any is shown, and nothing is drawn."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install rlvr[plot]")

    shown = runs.rlvr("runs", "show", "one", "--out", "c.svg")

    assert shown.returncode == 0, shown.stderr
    assert "drawn: c.svg" in shown.stderr
    drawn = (runs.home / "c.svg").read_text()
    assert "mean reward" in drawn
    assert "KL" not in drawn
    (runs.home / "runs" / "one" / "metrics.jsonl").write_text("")
    (runs.home / "runs" / "one" / "eval.jsonl").write_text("")
    none = runs.rlvr("runs", "show", "one", "--json", "--out", "none.svg")
    assert (none.returncode, none.stdout) == (2, "")
    assert "wait for the first step" in none.stderr
    assert not (runs.home / "none.svg").exists()
    assert runs.rlvr("runs", "show", "one", "--out", "c.gif").returncode == 2


def test_show_of_an_unknown_run(runs):
    """Exit 2 with the nearest name."""
    done = runs.rlvr("runs", "show", "onne")

    assert done.returncode == 2
    assert "did you mean 'one'?" in done.stderr


def test_a_half_written_line_is_named(runs):
    """A crash in the middle of a line costs that line only."""
    with (runs.home / "runs" / "one" / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 3, "rew')

    done = runs.rlvr("runs", "show", "one", "--json")

    assert len(json.loads(done.stdout)["metrics"]) == 2
    assert "line 3 is no JSON object" in done.stderr


def begun(runs, pid):
    """The run, with the status that its process wrote when it began."""
    path = runs.home / "runs" / "one"
    record = RECORD | {"status": "running", "pid": pid}
    (path / "run.json").write_text(json.dumps(record), encoding="utf-8")
    return path


def statuses(runs, capsys, monkeypatch):
    """The status of the run as list and show tell it."""
    monkeypatch.chdir(runs.home)
    told = []
    for words in (["list"], ["show", "one"]):
        assert main(["runs", *words, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        told.append((found[0] if isinstance(found, list) else found)["status"])
    return told


def test_a_run_whose_process_was_killed_is_stopped(runs, capsys, monkeypatch):
    """SIGKILL lets nobody write a status: the lock says who lives."""
    code = """
import os, sys, time
from pathlib import Path
from rlvr.records.owner import owned
with owned(Path(sys.argv[1])):
    print(os.getpid(), flush=True)
    time.sleep(600)
"""
    folder = runs.home / "runs" / "one"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            path = begun(runs, int(process.stdout.readline()))
            before = (path / "owner.lock").read_bytes()
            assert statuses(runs, capsys, monkeypatch) == ["running"] * 2
            begun(runs, process.pid + 1)  # another process writes there: a rescore of a dead run
            assert statuses(runs, capsys, monkeypatch) == ["stopped"] * 2
            begun(runs, process.pid)
        finally:
            process.kill()
    assert statuses(runs, capsys, monkeypatch) == ["stopped"] * 2
    assert (path / "owner.lock").read_bytes() == before
    assert main(["runs", "show", "one"]) == 0
    assert "go on with: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lock", "status"),
    [
        (None, "stopped"),  # removed, or never there: a copy without it
        ("", "stopped"),  # released
        ("no record", "stopped"),
        ({"host": "elsewhere", "pid": 1}, "stopped"),  # of a machine that has lost power
    ],
)
def test_a_lock_that_nobody_holds_is_of_a_stopped_run(runs, lock, status, capsys, monkeypatch):
    """Whatever its text says: the file system would show a lock, of any machine."""
    path = begun(runs, 1)
    if lock is not None:
        text = lock if isinstance(lock, str) else json.dumps(lock)
        (path / "owner.lock").write_text(text, encoding="utf-8")

    assert statuses(runs, capsys, monkeypatch) == [status] * 2


@pytest.mark.parametrize(
    ("told", "status"),
    [
        ({"pid": 2**22 + 1}, "stopped"),
        ({"boot": "before"}, "stopped"),
        ({}, "running"),
        ({"host": "elsewhere"}, "running"),  # nobody here can know
    ],
)
def test_without_locks_the_process_says_it(runs, told, status, capsys, monkeypatch):
    """Some file systems have no locks: then the machine and the process id of the record count."""
    path = begun(runs, os.getpid())
    (path / "owner.lock").write_text(json.dumps(_record(path) | told), encoding="utf-8")

    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)

    assert statuses(runs, capsys, monkeypatch) == [status] * 2


def test_a_run_that_ended_keeps_its_status(runs, capsys, monkeypatch):
    """Done, failed and interrupted were written by the run itself."""
    for status in ("done", "failed", "interrupted"):
        path = runs.home / "runs" / "one" / "run.json"
        path.write_text(json.dumps(RECORD | {"status": status}), encoding="utf-8")
        assert statuses(runs, capsys, monkeypatch) == [status] * 2
