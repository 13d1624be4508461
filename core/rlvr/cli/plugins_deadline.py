"""A limit on the time that `rlvr plugins check` waits for one step of a part."""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gc
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import IO, Any

from attrs import define, field

from rlvr.errors import ConfigError
from rlvr.plugins.author_error import place_in

_AGAIN_S = 5.0
"""Time that an interrupted part has to clean up, before it is interrupted again."""
_LAST_S = 60.0
"""Time after the limit until the process is ended, since no Python code runs in it any more: one
call of a C function such as `sum(range(10**12))`."""
_DEEPEST = 1000
"""Frames of one task that are looked at."""
_RUNNING = (CoroutineType, AsyncGeneratorType, GeneratorType)


class HungError(KeyboardInterrupt):
    """A part did not come back: like Ctrl-C, so that no `except Exception` of it goes on."""


@define
class Deadline:
    """
    Interrupts steps that do not end.

    Attributes:
        limit_s: Time that one step may take; 0: any.
        note_s: Time after which a line on standard error says what is waited for.
        stderr: Where that line goes: pytest takes the standard error of the process for itself.
        has_fired: Whether a step was interrupted.
    """

    limit_s: float
    note_s: float
    stderr: IO[str]
    has_fired: bool = field(default=False, init=False)

    @contextmanager
    def on(self, part: str, step: str) -> Iterator[None]:
        """
        Wait for a step of a part, in words, in the main thread: others cannot be interrupted.

        Raises:
            HungError: It took longer than the limit; says so, and where the part was.
        """
        if not self.limit_s or threading.current_thread() is not threading.main_thread():
            yield
            return
        over, where = threading.Event(), ""

        def interrupt(_: int, frame: FrameType | None) -> None:
            nonlocal where
            self.has_fired = True
            where = where or place_of_hang(frame)  # of the first time: then it cleans up
            at = f"; it was at {where}" if where else ""
            raise HungError(f"it did not return within {self.limit_s:g} s{at}")

        def note() -> None:
            if not over.wait(self.note_s):
                words = f"waiting for {part}, at most {self.limit_s:g} s (--limit): {step}"
                print(f"rlvr: {words}", file=self.stderr, flush=True)

        begun, handler = time.monotonic(), signal.signal(signal.SIGALRM, interrupt)
        left_s, again_s = signal.getitimer(signal.ITIMER_REAL)
        thread = threading.Thread(target=note, daemon=True, name="rlvr-note")
        thread.start()
        self.beat()
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            faulthandler.cancel_dump_traceback_later()
            over.set()
            thread.join()
            signal.signal(signal.SIGALRM, handler)
            if left_s:  # of a caller that limits the time of it all
                left_s = max(left_s - (time.monotonic() - begun), 0.001)
                signal.setitimer(signal.ITIMER_REAL, left_s, again_s)

    def beat(self) -> None:
        """The step gets on: its time begins anew."""
        signal.setitimer(signal.ITIMER_REAL, self.limit_s, _AGAIN_S)
        faulthandler.dump_traceback_later(self.limit_s + _LAST_S, exit=True, file=self.stderr)


@contextmanager
def deadline_of(args: argparse.Namespace) -> Iterator[Deadline]:
    """
    The limit of each step of a part.

    Raises:
        ConfigError: `--limit` is no time.
    """
    if not 0 <= args.limit < math.inf:
        raise ConfigError(f"--limit {args.limit:g} was given.", do="give seconds; 0: no limit")
    with _own_stderr() as stream:
        yield Deadline(limit_s=args.limit, note_s=args.slow, stderr=stream)


def _own_stderr() -> IO[str]:
    """A stream of its own to standard error as it is now; the caller closes it."""
    for stream in (sys.stderr, sys.__stderr__):
        with suppress(OSError, ValueError):
            if stream is not None:
                return os.fdopen(os.dup(stream.fileno()), "w", encoding="utf-8")
    return open(os.devnull, "w", encoding="utf-8")


def place_of_hang(frame: FrameType | None) -> str:
    """`FILE:LINE (function)` of the author's code that runs or waits, "" where none is found."""
    chains = [_callers(frame), *_waiting()]
    chains += [_callers(f) for f in sys._current_frames().values() if f is not frame]
    return next(filter(None, map(place_in, chains)), "")


def _callers(frame: FrameType | None) -> list[FrameType]:
    """A frame and its callers, the innermost first, up to the command that called the part."""
    found: list[FrameType] = []
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("rlvr.cli."):
        found.append(frame)
        frame = frame.f_back
    return found


def _waiting() -> Iterator[list[FrameType]]:
    """The frames of each task of the running event loop, the innermost first."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:  # no loop runs in this thread
        return
    for task in tasks:
        found: list[FrameType] = []
        at: Any = task.get_coro()
        while at is not None and len(found) < _DEEPEST:
            kind = next((k for k in ("cr", "ag", "gi") if hasattr(at, f"{k}_frame")), "")
            if not kind:  # what `__anext__` and `__await__` give: it refers to what runs
                running = (r for r in gc.get_referents(at) if isinstance(r, _RUNNING))
                at = next(running, None)
                continue
            if (frame := getattr(at, f"{kind}_frame")) is not None:
                found.append(frame)
            at = getattr(at, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
        yield found[::-1]


def descendants() -> set[int]:
    """Process ids of the children of this process and of theirs (Linux; empty elsewhere)."""
    found: set[int] = set()
    new = [os.getpid()]
    while new:
        with suppress(OSError):
            for file in Path(f"/proc/{new.pop()}/task").glob("*/children"):
                children = {int(pid) for pid in file.read_text(encoding="ascii").split()} - found
                found |= children
                new += children
    return found


def end_left_over(before: set[int]) -> None:
    """Kill the processes that were started since and run on: those of parts that hang."""
    for pid in descendants() - before:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
