"""A command in a child process, which its parent ends where a plugin hangs or crashes."""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import pickle
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, NoReturn

from attrs import define

from rlvr.cli.watched_child import OWN_S, Child, Step, adopt_orphans, descendants, die_with_parent
from rlvr.errors import ExitCode, counted
from rlvr.heartbeat import say, stdout_to_stderr
from rlvr.plugins.host import PluginHost
from rlvr.plugins.loading import HUNG

_MOST_S = 1e9
"""30 years: no clock takes much more."""
IMPORT_S = 10.0
"""Time that the import of a plugin may take, where no flag says another."""


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
            os.write(self.pipe.fileno(), b"+%f\n" % limit_s)  # no print: a signal may interrupt one
            faulthandler.dump_traceback_later(limit_s, file=self.pipe)

    def end(self) -> None:
        """Watch no longer."""
        if self.pipe is not None:
            faulthandler.cancel_dump_traceback_later()
            print(file=self.pipe, flush=True)

    @contextmanager
    def silenced(self) -> Iterator[None]:
        """Send to standard error what parts and, in a child, their programs print."""
        out = sys.stdout
        with stdout_to_stderr():
            if self.pipe is None:
                yield
                return
            out.flush()
            own = os.dup(1)
            os.dup2(2, 1)
            try:
                yield
            finally:
                with suppress(OSError, ValueError):  # a part closed it
                    out.flush()  # what a part wrote to `sys.__stdout__`
                os.dup2(own, 1)
                os.close(own)


def watched(
    work: Callable[[Watchdog], int],
    given_up: Callable[[Any, str], int | None],
    *,
    stopped: Callable[[Any], None],
    end_s: float,
    forks: bool,
) -> int:
    """
    The exit code of a command, which runs in a child process if `forks`, else here.

    No process that the child started outlives it.

    Args:
        work: The command.
        given_up: Called here for a step that hangs, or ends the process: with `Step.given`, and
            the reason in words. It gives the exit code; None: the command is tried again.
        stopped: Called here with `Step.given` of the step at which a signal ends the command.
        end_s: Time that the process may take to end when the command is done; 0: any.
        forks: Whether this process is the command's own.
    """
    if not forks:
        return work(Watchdog())
    others, code = descendants(os.getpid()), None
    adopt_orphans()
    while code is None:
        read, write = os.pipe()
        gc.freeze()  # what is imported stays shared: the child's collections do not touch it
        with warnings.catch_warnings():  # the other thread is the heartbeat: it holds no lock
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            os.close(read)
            die_with_parent()
            return _work(work, os.fdopen(write, "w", encoding="utf-8"), end_s)
        os.close(write)
        child = Child(pid, read, others)
        try:
            why, step = child.wait(), child.step
        finally:
            if child.is_stopped and child.step and not child.step.is_last:
                with suppress(OSError):  # the terminal was closed
                    stopped(child.step.given)
        if not why:
            code = child.code
        elif step and not step.is_last:
            code = given_up(step.given, why)
        else:
            code = (step.given if step else 0) or ExitCode.PLUGIN
            did = f"held up {step.words}" if step else "ended the command"
            say(f"rlvr: a plugin {did}: {why}    (exit {int(code)})")
    return code


def _work(work: Callable[[Watchdog], int], pipe: IO[str], end_s: float) -> int:
    """The exit code of the command, in the child: its parent is told where and how it ends."""
    watchdog, code, leave, own = Watchdog(pipe), 0, os._exit, os.getpid()

    def tell(status: int) -> NoReturn:
        if os.getpid() == own:  # no process that a part forked
            faulthandler.dump_traceback(pipe)
        leave(status)

    faulthandler.enable(pipe)
    os._exit = tell
    try:
        code = work(watchdog)
        watchdog.end()
        sys.stdout.flush()  # its reader may be slow
        return code
    finally:
        os._exit = leave
        words = "the end of the process"
        if left := [t.name for t in threading.enumerate()[1:] if not t.daemon]:
            words += f", which waits for {counted(len(left), 'thread')}, the first {left[0]}"
        step = Step(words=words, given=code, limit_s=end_s, grace_s=OWN_S, is_last=True)
        with suppress(OSError):  # a plugin closed the pipe
            watchdog.begin(step)


def with_plugins(
    work: Callable[[PluginHost, Watchdog], int],
    *,
    limit_s: float,
    forks: bool,
    given_up: Callable[[Any, str], int | None] = lambda *_: None,
    stopped: Callable[[Any], None] = lambda _: None,
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

    def stop(given: Any) -> None:
        if given is not None and not isinstance(given, str):
            stopped(given)

    return watched(load, end, stopped=stop, end_s=limit_s, forks=forks)


def add_limit_flag(parser: argparse.ArgumentParser, default_s: float, what: str) -> None:
    """Declare `--limit`; `what` happens after it."""
    words = f"seconds after which {what}; 0: never ({default_s:g})"
    parser.add_argument("--limit", type=seconds, default=default_s, metavar="S", help=words)


def seconds(text: str) -> float:
    """The type of a flag that takes a time."""
    with suppress(ValueError):
        if 0 <= (time_s := float(text)) <= _MOST_S:
            return time_s
    raise argparse.ArgumentTypeError(f"{text} is no time in seconds")
