"""Logs: what goes to standard error, what to the run's file, and what to neither."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import structlog
from rlvr_process import start_rlvr

from rlvr import is_coloured, is_redrawn, log
from rlvr.cli.output import table

ROOT = Path(__file__).parents[2]


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


def test_an_event_for_people_is_one_line_without_control_characters(capsys):
    """What a program or a file said is written out: it neither breaks the line nor colours it."""
    log.setup(json=False)

    log.get("t").warning("failed", error=OSError("a\nb"), said="\x1b[31mred\r\x9b\u2028")

    (line,) = capsys.readouterr().err.split("\n")[:-1]
    assert line.isprintable()
    assert r"error=a\nb" in line
    assert r"\x1b[31mred\r\x9b\u2028" in line


def on_terminal(code, columns, **environ):
    """What a program writes to a terminal as its standard error."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {n: v for n, v in os.environ.items() if n not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(code)
        script.flush()
        with open(1, "w", closefd=False) as out, open(its, "w") as err:
            env = {**kept, "TERM": "xterm", **environ}
            running = start_rlvr(program=Path(script.name), env=env, files=(out, err))
        told = b""
        with running, suppress(OSError):  # the end of a terminal reads as an error
            while read := os.read(ours, 4096):
                told += read
    os.close(ours)
    return told.decode()


HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\rover"
SHOWN = HOSTILE.encode("unicode_escape").decode()


def test_a_terminal_obeys_nothing_of_what_others_wrote():
    """Neither lines, nor redrawn ones, nor the live view, nor a traceback, nor standard output."""
    code = f"""
import sys
from rlvr import log, redraw
from rlvr.heartbeat import harmless_output, say
sys.stdout = sys.stderr
said = {HOSTILE!r}
say(said)
redraw(said)
with harmless_output():
    print(said)
    sys.stdout.writelines([said])
log.setup()
try:
    raise ValueError(said)
except ValueError:
    log.get("t").exception("failed")
"""
    live = LIVE.replace("50 *", "said +").replace("RunStatus()", "waiting", 1)
    live = f"""
said = {HOSTILE!r}
from rlvr.progress.status import RunStatus
class Waiting(RunStatus):
    def longest_wait(self):
        return said, 1.0
waiting = Waiting()
{live}"""

    for written in (on_terminal(code, 200), on_terminal(live, 200)):
        assert not re.search(r"\x1b\]|\x07|\x1b\[2J|\x9b|\u202e|\rover", written)
        assert written.count(SHOWN) >= 3


def test_colours_on_a_terminal_unless_no_color_is_set():
    """https://no-color.org: a value that is not empty asks for none."""
    code = "from rlvr import log; log.setup(); log.get('t').info('sampled', tokens=7)"

    assert "\x1b[" in on_terminal(code, 80)
    assert "\x1b[" in on_terminal(code, 80, NO_COLOR="")
    assert "tokens=7\r\n" in on_terminal(code, 80, NO_COLOR="1")
    assert "\x1b" not in on_terminal(code, 80, NO_COLOR="1")
    assert "\x1b" not in on_terminal(code, 80, TERM="dumb")


def test_a_redrawn_line_fits_the_terminal():
    """A line that wraps could not be overwritten whole: it is cut before the last column."""
    assert on_terminal("from rlvr import redraw; redraw(100 * 'x')", 40) == "\r\x1b[K" + 39 * "x"
    assert on_terminal("from rlvr import redraw; redraw(100 * '字')", 40) == "\r\x1b[K" + 19 * "字"


def test_a_table_lines_up_where_characters_are_wide():
    """Two columns each, as a terminal draws them; marks on letters take none."""
    text = table(("NAME", "N"), [("字字", 1), ("e\u0301", 2), ("a\nb", 3)])

    assert text.split("\n") == ["NAME  N", "字字  1", "e\u0301     2", "a\\nb  3"]


@pytest.mark.parametrize(
    ("term", "wanted"), [("xterm", True), (None, True), ("dumb", False), ("UNKNOWN", False)]
)
def test_a_line_is_redrawn_on_a_terminal_that_can(monkeypatch, term, wanted):
    """TERM says so; a file redraws nothing."""
    monkeypatch.delenv("TERM", raising=False)
    if term is not None:
        monkeypatch.setenv("TERM", term)
    assert is_redrawn(SimpleNamespace(isatty=lambda: True)) == wanted
    assert not is_redrawn(SimpleNamespace(isatty=lambda: False))


def test_one_helper_reads_no_color(monkeypatch):
    """
    Colours on a terminal, or where FORCE_COLOR asks for them and NO_COLOR does not.

    Nothing else in the sources asks the environment for it.
    """
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    terminal, file = SimpleNamespace(isatty=lambda: True), SimpleNamespace(isatty=lambda: False)
    monkeypatch.setenv("TERM", "xterm")
    for value, wanted in ((None, True), ("", True), ("1", False), ("0", False)):
        monkeypatch.delenv("NO_COLOR", raising=False)
        if value is not None:
            monkeypatch.setenv("NO_COLOR", value)
        assert (is_coloured(terminal), is_coloured(file)) == (wanted, False), value
        with monkeypatch.context() as forced:
            forced.setenv("FORCE_COLOR", "1")
            assert is_coloured(file) == wanted, value
    sources = [p for place in ("core", "plugins/*/rlvr_*", "rlvr-*/rlvr_*", "examples", "scripts")
               for folder in ROOT.glob(place) for p in folder.rglob("*.py")]  # fmt: skip
    readers = [p.name for p in sources if "NO_COLOR" in p.read_text("utf-8")]
    assert readers == ["heartbeat.py"]


LIVE = """
from types import SimpleNamespace as Run
from rlvr import log
from rlvr.builtin.terminal import progress_for
from rlvr.progress.status import RunStatus
live = progress_for(RunStatus())
live.rlvr_run_started(Run(plugin="p", algo="a", model="m", steps=1, directory="d"))
live.say("checkpoint " + 50 * "x")
log.setup()
log.get("t").warning("refused", path=50 * "y")
names = "reward/mean reward/pass rate/tokens_per_s rate/verifications_per_s verify/unscorable"
names += " verify/failed mismatch/kl mismatch/ratio/max"
live.rlvr_step_finished(1, dict.fromkeys(names.split(), 1.0))
live.rlvr_run_finished("done")
"""
FACTS = ["reward 1.000", "pass 100.0%", "tok/s 1", "verify/s 1.0", "dropped 2", "left 0:00",
         "mismatch 1.0e+00 nats (ratio to 1.00)"]  # fmt: skip


@pytest.mark.parametrize("columns", [24, 40, 80, 200])
def test_the_live_view_breaks_no_line(columns):
    """A path longer than the terminal is wide can be copied, from the log too; facts stay whole."""
    told = on_terminal(LIVE, columns, NO_COLOR="1")

    assert 50 * "x" in told
    assert 50 * "y" in told
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", told)
    last = re.split(r"\x1b\[2K", told)[-1]
    assert [fact for fact in FACTS if fact not in last] == (FACTS[-1:] if columns == 24 else [])
    assert max(map(len, last.splitlines())) <= columns


def test_the_live_view_leaves_a_redirected_standard_output_alone(capfd):
    """What a callback prints is in the file, not on the terminal."""
    told = on_terminal(LIVE.replace("names =", "print(30 * 'z')\nnames ="), 80)

    assert "zzz" not in told
    assert capfd.readouterr().out == 30 * "z" + "\n"


def test_a_terminal_that_redraws_nothing_gets_lines():
    """TERM=dumb: that of Emacs' shell and of many consoles of build servers."""
    told = on_terminal(LIVE, 80, TERM="dumb").splitlines()

    assert told[2] == "  ".join(["step 1/1", *FACTS[:4], FACTS[6], *FACTS[4:6]])
    assert not re.search("[\x1b\u2501]", "".join(told))


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


def test_plugins_may_log_at_each_of_structlogs_levels(capsys):
    """They have no logger but structlog's own."""
    log.setup(json=True)
    for level in ("debug", "info", "warning", "error", "critical"):
        getattr(structlog.get_logger(), level)(f"an_event_of_{level}")
    assert [json.loads(line)["level"] for line in capsys.readouterr().err.splitlines()] == [
        "info", "warning", "error", "critical",
    ]  # fmt: skip


def test_commands_in_threads_have_a_run_file_each(tmp_path):
    """Whichever begins or ends first; the caller's own set-up stands again in the end."""
    structlog.reset_defaults()
    turn = threading.Barrier(2)

    def command(name, ends_first):
        with log.borrowed():
            log.setup(run_file=tmp_path / name)
            turn.wait(10)
            log.get("t").info(f"of_{name}")
            turn.wait(10)
            if not ends_first:
                turn.wait(10)
                log.get("t").info("last")
        if ends_first:
            turn.wait(10)

    threads = [threading.Thread(target=command, args=given) for given in (("a", 0), ("b", 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert [event["event"] for event in lines(tmp_path / "a")] == ["of_a", "last"]
    assert [event["event"] for event in lines(tmp_path / "b")] == ["of_b"]
    assert not structlog.is_configured()


def test_a_command_within_another_takes_no_events_of_it(tmp_path):
    """A reward that calls `rlvr.score`, say."""
    with log.borrowed():
        log.setup(run_file=tmp_path / "outer")
        with log.borrowed():
            log.setup(run_file=tmp_path / "inner")
            log.get("t").info("inner")
        log.get("t").info("outer")
        thread = threading.Thread(target=log.get("t").info, args=("outer's thread",))
        thread.start()
        thread.join()

    events = [event["event"] for event in lines(tmp_path / "outer")]
    assert events == ["outer", "outer's thread"]


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
