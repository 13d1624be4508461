"""A command in a child process, which its parent ends where a plugin hangs or crashes."""

from __future__ import annotations

import argparse
import faulthandler
import gc
import math
import os
import pickle
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from attrs import define, field, frozen

from rlvr.heartbeat import tells
from rlvr.plugins.author_error import place_in_dump
from rlvr.plugins.host import PluginHost
from rlvr.plugins.loading import HUNG

IMPORT_S = 10.0
"""Time that the import of a plugin may take, where no flag says another."""
_DUMP_S = 0.2
"""Time in which faulthandler writes where all threads are, once it has begun."""
_OWN_S = 1.0
"""Time that the child has to end by itself after Ctrl-C: a terminal interrupts both processes."""
_CLEAN_S = 5.0
"""Time that it has after it was interrupted by its parent, before it is killed."""


@frozen(kw_only=True)
class Step:
    """
    What a command is at.

    Attributes:
        words: For people.
        given: For the parent's function that is called where the step does not end.
        limit_s: Time that it may take; 0: any.
        grace_s: Time after that which it has to end by itself.
        note_s: Time after which people are told what is waited for.
    """

    words: str
    given: Any
    limit_s: float
    grace_s: float = 0.0
    note_s: float = math.inf


@define
class Watchdog:
    """
    The child's side: says which step begins, so that the parent can end one that hangs.

    For that no Python code need run in the child: a C function may hold the interpreter's lock.
    Without a pipe (the command was called from Python) nothing is watched.
    """

    pipe: IO[str] | None = None

    def begin(self, step: Step) -> None:
        """Watch a step, until the next one or `end`."""
        if self.pipe is not None:
            print(pickle.dumps(step).hex(), file=self.pipe, flush=True)
            self.extend(step.limit_s and step.limit_s + step.grace_s)

    def extend(self, limit_s: float) -> None:
        """Let the step take so much longer from now on; 0: any time."""
        if self.pipe is not None and limit_s:
            faulthandler.dump_traceback_later(limit_s, file=self.pipe)

    def end(self) -> None:
        """Watch no longer."""
        if self.pipe is not None:
            faulthandler.cancel_dump_traceback_later()
            print(file=self.pipe, flush=True)


def watched(
    work: Callable[[Watchdog], int], given_up: Callable[[Any, str], int | None], *, forks: bool
) -> int:
    """
    The exit code of a command, which runs in a child process if `forks`, else here.

    Args:
        work: The command.
        given_up: Called here for a step that hangs, or ends the process: with `Step.given`, and
            the reason in words. It gives the exit code; None: the command is tried again.
        forks: Whether this process is the command's own.
    """
    if not forks:
        return work(Watchdog())
    code = None
    while code is None:
        read, write = os.pipe()
        gc.freeze()  # what is imported stays shared: the child's collections do not touch it
        with warnings.catch_warnings():  # the other thread is the heartbeat: it holds no lock
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            os.close(read)
            return work(Watchdog(os.fdopen(write, "w", encoding="utf-8")))
        os.close(write)
        child = _Child(pid, read)
        why = child.wait()
        if why and child.step:
            code = given_up(child.step.given, why)
        elif why:
            print(f"rlvr: {why}", file=sys.stderr)
            code = 128 - (child.code or 0)
        else:
            code = child.code
    return code


def with_plugins(
    work: Callable[[PluginHost, Watchdog], int],
    *,
    limit_s: float,
    forks: bool,
    given_up: Callable[[Any, str], int | None] = lambda *_: None,
) -> int:
    """
    The exit code of a command that is given the plugins, run as by `watched`.

    A plugin whose import takes longer than `limit_s`, or ends the process, is broken.
    """

    def load(watchdog: Watchdog) -> int:
        def importing(name: str) -> None:
            step = Step(words=f"the import of the plugin {name}", given=name, limit_s=limit_s)
            watchdog.begin(step) if name else watchdog.end()

        return work(PluginHost.load(importing=importing), watchdog)

    def end(given: Any, why: str) -> int | None:
        if not isinstance(given, str):
            return given_up(given, why)
        HUNG[given] = f"during its import {why}"
        return None

    return watched(load, end, forks=forks)


def add_limit_flag(parser: argparse.ArgumentParser, default_s: float, what: str) -> None:
    """Declare `--limit`; `what` happens after it."""
    words = f"seconds after which {what}; 0: never ({default_s:g})"
    parser.add_argument("--limit", type=_seconds, default=default_s, metavar="S", help=words)


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (time_s := float(text)) < math.inf:
            return time_s
    raise argparse.ArgumentTypeError(f"{text} is no time in seconds (0: no limit)")


@define
class _Child:
    """
    The parent's side: a child and its steps.

    Attributes:
        pid: Its process id.
        pipe: File descriptor of a line for each step that begins, and an empty one where none does;
            then may come what faulthandler writes of a step that takes too long.
        step: That it is at; None: none that is watched.
        code: Its exit code, minus the signal that ended it; None: it runs.
    """

    pid: int
    pipe: int
    step: Step | None = field(default=None, init=False)
    code: int | None = field(default=None, init=False)
    _note_at: float = field(default=math.inf, init=False)

    def wait(self) -> str:
        """Why it came to no end of its own, "" where it did."""
        tells(lambda: self.step.words if self.step else "")
        before = signal.signal(signal.SIGTERM, _leave)
        try:
            dump = self._listen()
        except KeyboardInterrupt:
            if not self._ends_within(_OWN_S):
                os.kill(self.pid, signal.SIGINT)
                if not self._ends_within(_CLEAN_S):
                    raise
            return ""
        finally:
            signal.signal(signal.SIGTERM, before)
            os.close(self.pipe)
            if self.code is None:
                kill(descendants(self.pid) | {self.pid})
                os.waitpid(self.pid, 0)
        if dump and self.step:
            place = place_in_dump(dump)
            at = f"; it was at {place}" if place else ""
            return f"it did not return within {self.step.limit_s:g} s{at}"
        if self.code is not None and self.code < 0:
            return f"it ended the process by {signal.Signals(-self.code).name}"
        return f"it ended the process with exit code {self.code}" if self.step else ""

    def _listen(self) -> str:
        """Take down its steps until it ends, or until faulthandler writes: gives that."""
        said = b""
        while not said.startswith(b"Timeout "):
            ready = select.select([self.pipe], [], [], 0.25)[0]
            if ready and (new := os.read(self.pipe, 1 << 16)):
                *lines, said = (said + new).split(b"\n")
                while lines and not lines[0].startswith(b"Timeout "):
                    self._begin(lines.pop(0))
                said = b"\n".join([*lines, said])
            elif self._has_ended(0 if ready else os.WNOHANG):
                return ""
            elif self.step and time.monotonic() > self._note_at:
                self._note_at = math.inf
                print(f"rlvr: waiting for {self.step.words}", file=sys.stderr, flush=True)
        while select.select([self.pipe], [], [], _DUMP_S)[0]:
            if not (new := os.read(self.pipe, 1 << 16)):
                break
            said += new
        return said.decode(errors="replace")

    def _begin(self, line: bytes) -> None:
        self.step = pickle.loads(bytes.fromhex(line.decode())) if line else None
        self._note_at = time.monotonic() + self.step.note_s if self.step else math.inf

    def _has_ended(self, options: int) -> bool:
        pid, status = os.waitpid(self.pid, options)
        if pid:
            self.code = os.waitstatus_to_exitcode(status)
        return bool(pid)

    def _ends_within(self, time_s: float) -> bool:
        until = time.monotonic() + time_s
        while not (has_ended := self._has_ended(os.WNOHANG)) and time.monotonic() < until:
            time.sleep(0.02)
            if select.select([self.pipe], [], [], 0)[0]:
                os.read(self.pipe, 1 << 16)  # else the child could wait for that
        return has_ended


def _leave(number: int, _: object) -> NoReturn:
    """End as a signal would, but for the child, which is killed on the way out."""
    sys.exit(128 + number)


def descendants(of: int) -> set[int]:
    """Process ids of the children of a process and of theirs (Linux; empty elsewhere)."""
    found: set[int] = set()
    new = [of]
    while new:
        with suppress(OSError):
            for file in Path(f"/proc/{new.pop()}/task").glob("*/children"):
                children = {int(pid) for pid in file.read_text(encoding="ascii").split()} - found
                found |= children
                new += children
    return found


def kill(processes: set[int]) -> None:
    """Kill the processes that still run."""
    for pid in processes:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
