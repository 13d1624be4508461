"""Progress lines of a command whose output is redirected, and what a terminal can show."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

__all__ = ["hush", "is_coloured", "is_redrawn", "redraw", "tells"]

INTERVAL_S, LONGEST_S = 5.0, 60.0
"""Silence before the first line; it doubles after each, so that a log of hours stays short."""

_said_at = 0.0
_doing: Callable[[], str] | None = None
_is_hushed = False
_is_abandoned = False


def abandon_threads() -> None:
    """Threads of a plugin never end: the process is not to wait for them when the command ends."""
    global _is_abandoned
    _is_abandoned = True


def are_threads_abandoned() -> bool:
    """Whether `abandon_threads` was called."""
    return _is_abandoned


def is_redrawn(stream: TextIO) -> bool:
    """Whether a line there can be overwritten: on a terminal, unless TERM says that it cannot."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def is_coloured(stream: TextIO) -> bool:
    """Whether to write colours: where lines are redrawn, unless NO_COLOR holds any text."""
    return is_redrawn(stream) and not os.environ.get("NO_COLOR")  # no-color.org


def redraw(text: str) -> None:
    """Overwrite the last line of standard error; text beyond the terminal's width is cut."""
    with suppress(OSError, ValueError):
        width = os.get_terminal_size(sys.stderr.fileno()).columns
        text = text[: width - 1] if width else text  # a line that wraps is not overwritten whole
    print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def touch() -> None:
    """A line was just written: none is due for the next interval."""
    global _said_at
    _said_at = time.monotonic()


def tells(doing: Callable[[], str]) -> None:
    """Ask `doing` from now on what the command is at; it is called in another thread."""
    global _doing
    _doing = doing


def hush() -> None:
    """Say nothing more: the command now serves others, or waits for a person."""
    global _is_hushed
    _is_hushed = True


@contextmanager
def heartbeat(
    command: str, *, interval_s: float = INTERVAL_S, place: Callable[[], str] = str
) -> Iterator[None]:
    """
    Say on standard error what the command is at, whenever nothing was said for `interval_s`.

    That interval doubles after each such line, up to `LONGEST_S`. `place` says where in a plugin's
    code the command is, "" where it is in none.
    Nothing is said on a terminal that redraws lines: displays are drawn there.
    """
    global _doing, _is_hushed
    _doing, _is_hushed = None, False
    if is_redrawn(sys.stderr):
        yield
        return
    over, begun = threading.Event(), time.monotonic()
    touch()

    def beat() -> None:
        silence_s = interval_s
        while not over.wait(min(0.5, interval_s / 4)):
            if _is_hushed or time.monotonic() - _said_at < silence_s:
                continue
            told = at = ""
            with suppress(Exception):  # another thread changes what is read: the next beat tells it
                told = _doing() if _doing is not None else ""
            with suppress(Exception):
                at = place()
            words = f"rlvr: {command}: at work for {time.monotonic() - begun:.0f} s"
            words += f", {told}" * bool(told) + f"; at {at}" * bool(at)
            print(words, file=sys.stderr, flush=True)
            touch()
            silence_s = min(2 * silence_s, LONGEST_S)

    thread = threading.Thread(target=beat, daemon=True, name="rlvr-heartbeat")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _doing = None
