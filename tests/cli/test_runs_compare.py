"""`rlvr runs compare`: curves, pictures and differences of runs, finished or not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

NO_MATPLOTLIB = "raise ImportError('No module named matplotlib')\n"


def write_run(home: Path, name: str, rewards: list[float], **record: Any) -> Path:
    """A run directory made by hand: a step a reward, an evaluation at its end."""
    path = home / "runs" / name
    path.mkdir(parents=True)
    told = {
        "id": name,
        "status": "done",
        "plugin": "toy",
        "steps": 4,
        "config": {"train.lr": 0.1, "run.seed": 1},
        "origin": {"train.lr": "default", "run.seed": "command line"},
        "versions": {"rlvr": "0.1.0"},
        "dataset": "toy",
        "dataset_hash": "abc",
        **record,
    }
    (path / "run.json").write_text(json.dumps(told), encoding="utf-8")
    lines = [
        {
            "step": step,
            "reward/mean": reward,
            "reward/pass": reward / 2,
            "sampler/length_mean": 10.0 + step,
            "time/total_s": 2.0 * step,
        }
        for step, reward in enumerate(rewards, start=1)
    ]
    _write_lines(path / "metrics.jsonl", lines)
    if rewards:
        right = rewards[-1] > 0.5
        scores = {f"p{i}": [float(right or i == 0)] for i in range(4)}
        evaluation = {"step": len(rewards), "split": "test", "scores": scores}
        pass1 = sum(s[0] for s in scores.values()) / 4
        _write_lines(path / "eval.jsonl", [{**evaluation, "pass1": pass1}])
    return path


def _write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")


@pytest.fixture
def site(plugin_site):
    """A site with two runs: one finished and better, one that still runs and measures KL."""
    write_run(plugin_site.home, "one", [0.2, 0.4, 0.8, 0.6])
    two = write_run(
        plugin_site.home,
        "two",
        [0.1, 0.3],
        status="running",
        config={"train.lr": 0.2, "run.seed": 1, "algo.beta": 0.01},
        origin={"train.lr": "command line", "algo.beta": "algorithm grpo"},
        versions={"rlvr": "0.2.0"},
    )
    with (two / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": 3, "reward/mean": 0.5, "kl/reference": 0.01}) + "\n")
        file.write('{"step": 4, "rew')  # a line that is being written
    return plugin_site


def test_the_table(site):
    """Last, best with its step, mean of the last quarter; a metric that one run lacks is said."""
    done = site.rlvr("runs", "compare", "one", "two")

    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["one:", "done,", "step", "4", "of", "4,", "8", "s"] in rows
    assert ["two:", "stopped,", "step", "3", "of", "4,", "4", "s"] in rows
    assert ["reward/mean", "one", "4", "0.6", "0.8", "3", "0.6"] in rows
    assert ["reward/mean", "two", "3", "0.5", "0.5", "3", "0.5"] in rows
    assert ["kl/reference", "one", "0", "-", "-", "-", "-"] in rows
    assert ["kl/reference", "two", "1", "0.01", "-", "-", "0.01"] in rows
    assert ["time/step_s", "one", "4", "2", "2", "1", "2"] in rows
    assert "in none of these runs: kl/sampler, mismatch/kl" in done.stdout
    assert "metrics.jsonl: line 4 is no JSON object" in done.stderr


def test_what_was_set_differently(site):
    """Both values, and the layer each came from; versions apart; nothing that is equal."""
    text = site.rlvr("runs", "compare", "one", "two").stdout
    rows = [line.split("  ") for line in text.splitlines()]
    cells = [[cell.strip() for cell in row if cell] for row in rows]

    assert ["train.lr", "0.1 (default)", "0.2 (command line)"] in cells
    assert ["algo.beta", "(none)", "0.01 (algorithm grpo)"] in cells
    assert ["version of rlvr", "0.1.0", "0.2.0"] in cells
    assert not any(row[0] in ("run.seed", "dataset_hash") for row in cells if row)


def test_last_evaluations_are_paired(site):
    """The second run against the first: 3 of 4 problems only by the first, p by hand."""
    text = site.rlvr("runs", "compare", "one", "two").stdout
    told = json.loads(site.rlvr("runs", "compare", "one", "two", "--json").stdout)

    paired = told["last_evaluations"]["two"]
    assert (paired["difference"], paired["only_against"], paired["p_value"]) == (-0.75, 3, 0.25)
    assert "last evaluations, two against one" in text
    assert told["runs"]["one"]["curves"]["reward/mean"]["points"][2] == [3, 0.8]
    assert told["runs"]["one"]["curves"]["kl/reference"] is None
    assert {d["key"] for d in told["options"]} == {"train.lr", "algo.beta"}


@pytest.mark.parametrize(("name", "magic"), [("c.png", b"\x89PNG"), ("c.svg", b"<?xml")])
def test_a_picture_without_a_display(site, name, magic):
    """PNG or SVG by its ending; every run and every metric that is there is in it."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install rlvr[plot]")

    done = site.rlvr("runs", "compare", "one", "two", "--out", name, DISPLAY="", MPLBACKEND="tkagg")

    assert done.returncode == 0, done.stderr
    drawn = (site.home / name).read_bytes()
    assert drawn.startswith(magic)
    if name == "c.svg":
        texts = drawn.decode()
        for text in ("mean reward", "pass rate", "KL to the reference", "mean length", ">two<"):
            assert text in texts
        assert "KL to the sampler" not in texts


def test_three_runs_and_equal_names(site):
    """Any number of runs; folders of the same name are told apart by their paths."""
    write_run(site.home / "elsewhere", "one", [0.9])

    told = json.loads(
        site.rlvr("runs", "compare", "one", "two", "elsewhere/runs/one", "--json").stdout
    )

    assert list(told["runs"]) == ["runs/one", "runs/two", "elsewhere/runs/one"]
    assert told["last_evaluations"]["elsewhere/runs/one"]["difference"] == 0.0


def test_runs_without_metrics_yet(site):
    """A run that has just begun is said, not crashed on; what was set is compared all the same."""
    write_run(site.home, "new", [], status="running", config={"train.lr": 0.3})
    write_run(site.home, "newer", [], status="running", config={"train.lr": 0.4})

    beside = site.rlvr("runs", "compare", "one", "new")
    alone = site.rlvr("runs", "compare", "new", "newer")
    drawn = site.rlvr("runs", "compare", "new", "newer", "--out", "c.svg")

    assert beside.returncode == alone.returncode == 0, beside.stderr + alone.stderr
    assert "new: stopped, step 0 of 4" in beside.stdout
    assert "no metrics in any of these runs yet" in alone.stdout
    assert "0.3" in alone.stdout
    assert drawn.returncode == 2
    assert "wait for the first step" in drawn.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["one"], "1 named, 1 different"),
        (["one", "runs/one"], "2 named, 1 different"),
        (["one", "tow"], "did you mean 'two'?"),
        (["one", "."], "no run.json there"),
        (["one", "two", "--out", "c.pdf"], "choose one of .png, .svg"),
        (["one", "two", "--out", "nowhere/c.png"], "No such file or directory"),
        (["one", "two", "--out", "runs/c.png"], "a folder"),
    ],
)
def test_what_cannot_be_compared_or_drawn_is_refused(site, words, message):
    """Exit 2 before any work, with what was found and what to do."""
    (site.home / "runs" / "c.png").mkdir()

    done = site.rlvr("runs", "compare", *words)

    assert done.returncode == 2
    assert message in done.stderr
    assert not done.stdout
    assert "Traceback" not in done.stderr


def test_a_picture_needs_matplotlib(site):
    """Exit 4 with the command that installs it; without `--out` it is not needed."""
    (site.path / "matplotlib.py").write_text(NO_MATPLOTLIB, encoding="utf-8")

    drawn = site.rlvr("runs", "compare", "one", "two", "--out", "c.png")
    table = site.rlvr("runs", "compare", "one", "two")

    assert drawn.returncode == 4
    assert re.search(r"pip install .*\[plot\]", drawn.stderr)
    assert table.returncode == 0
