"""`rlvr runs`: what is read from run directories, also damaged ones."""

from __future__ import annotations

import json

import pytest

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
