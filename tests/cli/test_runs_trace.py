"""`rlvr runs trace`: the picture of what overlapped."""

from __future__ import annotations

import json

import pytest

SPANS = [
    {"name": "sample", "lane": "sample", "begin_s": 10.0, "end_s": 11.0, "step": 1},
    {"name": "p1", "lane": "verification 1", "begin_s": 11.0, "end_s": 13.0, "step": 1},
    {"name": "train", "lane": "train", "begin_s": 12.0, "end_s": 13.0, "step": 2},
]


@pytest.fixture
def run(plugin_site):
    """A site with a run that left three spans."""
    path = plugin_site.home / "runs" / "one"
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"id": "one", "config": {}}), encoding="utf-8")
    (path / "trace.jsonl").write_text("".join(json.dumps(s) + "\n" for s in SPANS), "utf-8")
    return plugin_site


def test_it_writes_a_chrome_trace_and_says_what_overlapped(run):
    """4 s of work in 3 s: the file beside the run holds an event a span."""
    found = json.loads(run.rlvr("runs", "trace", "one", "--json").stdout)
    assert found["seconds"]["overlap"] == pytest.approx(4 / 3)
    trace = json.loads((run.home / "runs" / "one" / "trace.json").read_text())
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert [(e["name"], e["ts"], e["dur"]) for e in events] == [
        ("sample", 0, 1_000_000),
        ("p1", 1_000_000, 2_000_000),
        ("train", 2_000_000, 1_000_000),
    ]
    assert "overlap 1.33" in run.rlvr("runs", "trace", "one").stdout


def test_some_steps_only_and_another_file(run):
    """`--steps` picks, `--out` says where."""
    out = run.home / "t.json"
    done = run.rlvr("runs", "trace", "one", "--steps", "2", "--out", str(out), "--json")
    assert json.loads(done.stdout)["spans"] == 1
    assert out.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("one", "--steps", "7-9"), "no finished step among those"),
        (("two",), "two"),
        (("one", "--steps", "x"), "no step and no range"),
    ],
)
def test_bad_input_is_a_usage_error(run, words, said):
    """No such run, no such step, no range: exit 2 with words."""
    done = run.rlvr("runs", "trace", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
