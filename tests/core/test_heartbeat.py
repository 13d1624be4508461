"""A command whose output is redirected says something while it works; nothing of it is JSON."""

from __future__ import annotations

import errno
import io
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rlvr import CommandSpec, ConfigError, log, stdout_to_stderr, tells
from rlvr.cli import main as command_line
from rlvr.cli import plugin_commands
from rlvr.heartbeat import INTERVAL_S, LONGEST_S, heartbeat, say
from rlvr.progress.status import RunStatus


class Stream(io.StringIO):
    """Standard error that tells when enough lines were written."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.wanted, self.is_enough = lines, threading.Event()

    def write(self, text: str) -> int:
        """Count lines."""
        written = super().write(text)
        if self.getvalue().count("\n") >= self.wanted:
            self.is_enough.set()
        return written


def redirected(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """Redirected standard error; three lines are enough. In the test: pytest captures it before."""
    found = Stream(3)
    monkeypatch.setattr(sys, "stderr", found)
    return found


def test_a_silent_command_says_what_it_is_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Again and again, with the phase of its status and the longest verification."""
    stream = redirected(monkeypatch)
    status, begun = RunStatus(), time.monotonic()
    with heartbeat("score", interval_s=0.01):
        tells(status.text)
        status.begin_verifying(3)
        with status.during("verify"), status.verifying("problem_7"):
            assert stream.is_enough.wait(60)
            assert time.monotonic() - begun > 0.01 + 0.02 + 0.04  # each silence is twice as long

    said = stream.getvalue()
    assert "rlvr: score: at work for " in said
    assert "verify, 0 of 3 answers judged, longest problem_7" in said
    assert INTERVAL_S < 10 < LONGEST_S


def test_what_the_command_tells_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that changes while it is read costs no command."""
    stream = redirected(monkeypatch)
    with heartbeat("runs", interval_s=0.01):
        tells(lambda: str(1 / 0))
        assert stream.is_enough.wait(60)

    assert "at work for" in stream.getvalue()


def test_a_terminal_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Displays are drawn there."""
    stream = Stream(1)
    stream.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    before = threading.active_count()
    with heartbeat("run", interval_s=0.001):
        assert threading.active_count() == before


@pytest.mark.parametrize("words", [{}, {"is_interactive": True}, {"is_top": True}])
def test_commands_of_plugins_have_it_too(
    monkeypatch: pytest.MonkeyPatch, words: dict[str, bool]
) -> None:
    """Also while they are imported, and as words of their own; but not who waits for a person."""
    spec = CommandSpec(name="cost", target="m:f", provider="p", **words)
    stream = redirected(monkeypatch)
    monkeypatch.setattr(command_line, "heartbeat", partial(heartbeat, interval_s=0.01))

    def imported(*_: object) -> Callable[[list[str]], int]:
        assert stream.is_enough.wait(60)
        return target

    def target(_words: list[str]) -> int:
        stream.truncate(stream.seek(0))
        stream.is_enough.clear()
        stream.is_enough.wait(0.3 if words.get("is_interactive") else 60)
        return 0

    monkeypatch.setattr(plugin_commands, "load_object", imported)
    monkeypatch.setattr(
        plugin_commands, "run_plugin_command", lambda *_: plugin_commands._call(spec, [])
    )

    assert command_line.main(["p", "cost"]) == 0
    assert ("rlvr: p: at work for" in stream.getvalue()) is not words.get("is_interactive", False)
    assert (", cost" in stream.getvalue()) is not words.get("is_interactive", False)


def test_a_stream_that_is_closed_costs_no_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`2>&-`: what would be said there is not said among the results either."""
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "stderr", None)

    code = command_line.main(["runs", "list", str(tmp_path)])

    sys.stdin.close()
    sys.stderr.close()
    assert (code, capsys.readouterr().out) == (0, "")


def test_logs_of_commands_are_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever sets logging up while a command runs; outside of one a pipe gets JSON as before."""
    with log.plain_lines():
        log.setup()
        log.get("x").info("groups_scored", step=3)
    assert not capsys.readouterr().err.startswith("{")
    log.setup()
    log.get("x").info("groups_scored", step=3)
    assert capsys.readouterr().err.startswith("{")


@pytest.mark.parametrize(
    "text",
    ["rlvr score: wrong", "rlvr: wrong", "rlvr runs list: wrong", "rlvr tinker cost: error: wrong"],
)
def test_a_message_has_one_prefix(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a parser, a command or a plugin put before it."""
    command_line._report(ConfigError(text), [])

    assert capsys.readouterr().err == "rlvr: wrong    (exit 2)\n"


@pytest.mark.parametrize(
    "words", [["score"], ["runs"], ["runs", "show"], ["eval", "--samples", "x"]]
)
def test_no_command_doubles_its_prefix(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The mistake is told once, by rlvr."""
    assert command_line.main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("rlvr: ")
    assert "rlvr: rlvr" not in said


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_stand_in_on_a_full_disk_costs_the_lines_alone(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script's own log of standard error; a quota is a full disk as well."""

    class Full:
        def write(self, text: str) -> int:
            raise OSError(code, "full")

    monkeypatch.setattr(sys, "stderr", Full())
    say("rlvr: a line")


def test_threads_that_print_aside_give_standard_output_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In whichever order they begin and end: two runs that load plugins lost what came after."""
    begun, ended = threading.Event(), threading.Event()

    def first() -> None:
        with stdout_to_stderr():
            begun.wait(10)
        ended.set()

    before, thread = sys.stdout, threading.Thread(target=first)
    thread.start()
    while sys.stdout is before:
        time.sleep(0.001)
    with stdout_to_stderr():
        begun.set()
        assert ended.wait(10)
        print("aside")
    thread.join()

    assert sys.stdout is before
    assert capsys.readouterr() == ("", "aside\n")
