"""Logs: what goes to standard error, what to the run's file, and what to neither."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rlvr import log


def lines(path):
    """The objects of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_events_go_to_standard_error_as_json(capsys):
    """Off a terminal a line is a JSON object, and standard output is left alone."""
    log.setup()

    log.get("rlvr.test").info("groups_scored", step=12, reward_mean=0.41)

    out, err = capsys.readouterr()
    event = json.loads(err)
    assert out == ""
    assert event["event"] == "groups_scored"
    assert (event["step"], event["level"], event["logger"]) == (12, "info", "rlvr.test")
    assert event["timestamp"].endswith("Z")


def test_people_get_readable_lines(capsys):
    """Without JSON a line shows the event and its values."""
    log.setup(json=False)

    log.get("t").info("groups_scored", step=12)

    err = capsys.readouterr().err
    assert "groups_scored" in err
    assert "step=12" in err


@pytest.mark.parametrize(
    ("verbosity", "heard"),
    [
        (1, ["debug", "info", "warning", "error"]),
        (0, ["info", "warning", "error"]),
        (-1, ["warning", "error"]),
        (-2, ["error"]),
        (-9, ["error"]),
    ],
)
def test_verbosity(capsys, verbosity, heard):
    """-v adds debug events, -q leaves warnings, -qq errors."""
    log.setup(verbosity=verbosity)

    for level in ("debug", "info", "warning", "error"):
        getattr(log.get("t"), level)(level)

    events = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert events == heard


def test_the_run_file_has_every_event_whatever_the_verbosity(tmp_path, capsys):
    """A quiet run still leaves its events behind."""
    path = tmp_path / "events.jsonl"
    log.setup(verbosity=-2, run_file=path)

    log.get("t").info("sampled", tokens=7)

    assert capsys.readouterr().err == ""
    assert [(e["event"], e["tokens"]) for e in lines(path)] == [("sampled", 7)]


def test_bound_values_are_on_every_event(tmp_path):
    """run_id and step are bound once, not passed around."""
    path = tmp_path / "events.jsonl"
    log.setup(run_file=path)
    with log.bound(run_id="r1"):
        with log.bound(step=3):
            log.get("t").info("one")

        log.get("t").info("two")

    one, two = lines(path)
    assert (one["run_id"], one["step"]) == ("r1", 3)
    assert two["run_id"] == "r1"
    assert "step" not in two


@pytest.mark.parametrize("key", ["prompt", "completion", "messages", "text", "answer"])
def test_prompts_and_completions_are_never_logged(tmp_path, capsys, key):
    """Their length is; their words reach neither the screen nor the file."""
    path = tmp_path / "events.jsonl"
    log.setup(verbosity=1, run_file=path)

    log.get("t").info("sampled", **{key: "a secret"})

    assert "secret" not in capsys.readouterr().err + path.read_text()
    assert lines(path)[0][key] == "<8 characters>"


def test_a_traceback_is_kept(tmp_path):
    """`exception` writes the traceback into the run file."""
    path = tmp_path / "events.jsonl"
    log.setup(run_file=path)
    try:
        raise ValueError("why")
    except ValueError:
        log.get("t").exception("verifier_crashed")

    assert "ValueError: why" in lines(path)[0]["exception"]


def test_a_run_file_that_cannot_be_written_stops_nothing(tmp_path, capsys):
    """A full disk costs the log, not the run; it is said once."""
    log.setup(run_file=tmp_path)  # a folder: every append fails

    log.get("t").info("one")
    log.get("t").info("two")

    assert capsys.readouterr().err.count("cannot write") == 1


def test_structlog_is_imported_with_the_first_event():
    """Making a logger at import time costs nothing."""
    code = "import sys, rlvr.log; rlvr.log.get('x'); print('structlog' in sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240
    )

    assert done.stdout.strip() == "False"
