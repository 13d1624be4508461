"""The parent's side of a command in a child process: its steps, and the end of it."""

from __future__ import annotations

import ctypes
import math
import os
import pickle
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from attrs import define, field, frozen

from rlvr.heartbeat import say, tells
from rlvr.plugins.author_error import place_in_dump

_DUMP_S = 0.2
"""Time in which faulthandler writes where all threads are, once it has begun."""
_LATE_S = 1.0
"""Time after which a step is ended where faulthandler, which a plugin can stop, wrote nothing."""
OWN_S = 1.0
"""Time that the child has to end by itself when it is done, or after Ctrl-C, which a terminal sends
to both processes."""
_CLEAN_S = 5.0
"""Time that it has after it was interrupted by its parent, or told of its end, before it is
killed."""
_DIES_WITH_PARENT, _ADOPTS = 1, 36
"""Options of prctl (Linux): a signal when the parent ends; orphans below this process are its."""


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
        is_last: Whether nothing is left but the process's own end; `given` is its exit code.
    """

    words: str
    given: Any
    limit_s: float
    grace_s: float = 0.0
    note_s: float = math.inf
    is_last: bool = False


@define
class Child:
    """
    The parent's side: a child and its steps.

    Attributes:
        pid: Its process id.
        pipe: File descriptor of a line for each step that begins, and an empty one where none does;
            `+S` lets it take S seconds from now on. Then may come what faulthandler writes of a
            step that takes too long, or of one that ends the process.
        others: Processes below this one that are not the child's.
        step: That it is at; None: none that is watched.
        is_stopped: Whether Ctrl-C, SIGTERM or SIGHUP ends it.
        code: Its exit code, minus the signal that ended it; None: it runs.
    """

    pid: int
    pipe: int
    others: set[int]
    step: Step | None = field(default=None, init=False)
    is_stopped: bool = field(default=False, init=False)
    code: int | None = field(default=None, init=False)
    _note_at: float = field(default=math.inf, init=False)
    _end_at: float = field(default=math.inf, init=False)

    def wait(self) -> str:
        """Why it came to no end of its own, "" where it did."""
        tells(lambda: self.step.words if self.step else "")
        before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)}
        for number in [n for n, handler in before.items() if handler != signal.SIG_IGN]:  # nohup
            signal.signal(number, self._leave)
        try:
            dump = self._listen()
            if dump and not dump.startswith("Timeout"):
                self._ends_within(_CLEAN_S)
        except SystemExit as leaving:
            name = signal.Signals(int(leaving.code or 0) - 128).name
            with suppress(OSError):  # the terminal was closed
                say(f"rlvr: ended by {name} (exit {leaving.code})")
            raise
        except KeyboardInterrupt:
            self.is_stopped = True
            if not self._ends_within(OWN_S):
                os.kill(self.pid, signal.SIGINT)
                self._ends_within(_CLEAN_S)
            if self.code is None or self.code < 0:  # else it said that it was interrupted
                raise
            return ""
        finally:
            os.close(self.pipe)
            self._end_all()
            for number, handler in before.items():
                if not self.is_stopped:  # else a second one, on the way out, says the same
                    signal.signal(number, handler)
        place = place_in_dump(dump)
        at = f"; it was at {place}" if place else ""
        if self.step and dump.startswith("Timeout"):
            return f"it did not return within {self.step.limit_s:g} s{at}"
        if self.code is not None and self.code < 0:
            return f"it ended the process by {signal.Signals(-self.code).name}{at}"
        is_own = self.step and self.step.is_last
        return "" if is_own else f"it ended the process with exit code {self.code}{at}"

    def _leave(self, number: int, _: object) -> NoReturn:
        """End as a signal would, but for the child, which is killed on the way out."""
        self.is_stopped = True
        sys.exit(128 + number)

    def _end_all(self) -> None:
        """Kill the child, and all that it started."""
        left = {self.pid} if self.code is None else set[int]()
        for _ in range(100):
            if not (left := left | descendants(os.getpid()) - self.others):
                break
            kill(left)
            time.sleep(0.01)
            for pid in left:
                with suppress(ChildProcessError):  # its parent's, which was killed too
                    os.waitpid(pid, os.WNOHANG)
            left = set()

    def _listen(self) -> str:
        """Take down its steps until it ends, or until faulthandler writes: gives that."""
        said = b""
        while not said[:1].isupper():
            ready = select.select([self.pipe], [], [], 0.25)[0]
            if ready and (new := os.read(self.pipe, 1 << 16)):
                *lines, said = (said + new).split(b"\n")
                while lines and not lines[0][:1].isupper():
                    self._begin(lines.pop(0))
                said = b"\n".join([*lines, said])
            elif self._has_ended():
                return ""
            elif time.monotonic() > self._end_at:
                return "Timeout"
            elif ready:  # its end of the pipe is closed: it is about to end, or a plugin closed all
                time.sleep(0.005)
            elif self.step and time.monotonic() > self._note_at:
                self._note_at = math.inf
                say(f"rlvr: waiting for {self.step.words}")
        while select.select([self.pipe], [], [], _DUMP_S)[0]:
            if not (new := os.read(self.pipe, 1 << 16)):
                break
            said += new
        return said.decode(errors="replace")

    def _begin(self, line: bytes) -> None:
        if line.startswith(b"+"):
            self._end_at = time.monotonic() + float(line) + _LATE_S
            return
        self.step = pickle.loads(bytes.fromhex(line.decode())) if line else None
        self._end_at = math.inf
        self._note_at = time.monotonic() + self.step.note_s if self.step else math.inf

    def _has_ended(self) -> bool:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.code = os.waitstatus_to_exitcode(status)
        return bool(pid)

    def _ends_within(self, time_s: float) -> bool:
        until = time.monotonic() + time_s
        while not (has_ended := self._has_ended()) and time.monotonic() < until:
            time.sleep(0.02)
            if select.select([self.pipe], [], [], 0)[0]:
                os.read(self.pipe, 1 << 16)  # else the child could wait for that
        return has_ended


def adopt_orphans() -> None:
    """Let what the children of this process leave behind be its own children (Linux)."""
    _prctl(_ADOPTS, 1)


def die_with_parent() -> None:
    """Let this process be killed where its parent ends (Linux)."""
    _prctl(_DIES_WITH_PARENT, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    with suppress(AttributeError, OSError):  # another system than Linux
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


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
