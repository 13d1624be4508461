"""Progress lines of a command whose output is redirected, and what a terminal can show."""

from __future__ import annotations

import errno
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

__all__ = ["harmless", "hush", "is_coloured", "is_redrawn", "redraw", "stdout_to_stderr", "tells"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

INTERVAL_S, LONGEST_S = 5.0, 60.0
"""Silence before the first line; it doubles after each, so that a log of hours stays short."""

_said_at = 0.0
_doing: Callable[[], str] | None = None
_is_hushed = False
_is_abandoned = False
_REDIRECTING = threading.Lock()
_redirects, _stdout = 0, sys.stdout


def abandon_threads() -> None:
    """Threads of a plugin never end: the process is not to wait for them when the command ends."""
    global _is_abandoned
    _is_abandoned = True


def are_threads_abandoned() -> bool:
    """Whether `abandon_threads` was called."""
    return _is_abandoned


def is_redrawn(stream: TextIO) -> bool:
    """Whether a line there can be overwritten: on a terminal, unless TERM says that it cannot."""
    is_terminal = getattr(stream, "isatty", bool)()  # what stands for a stream may lack it
    return is_terminal and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def is_coloured(stream: TextIO) -> bool:
    """
    Whether to write colours: where lines are redrawn, or FORCE_COLOR holds any text.

    Never if NO_COLOR holds one (no-color.org, force-color.org).
    """
    wanted = is_redrawn(stream) or os.environ.get("FORCE_COLOR")
    return bool(wanted) and not os.environ.get("NO_COLOR")


def harmless(text: str, *, keep: str = "\n\t") -> str:
    r"""
    Control characters written out (`\x1b`), and those that turn the direction of writing.

    A terminal obeys them, whoever wrote them: a data set, a model's answer, a plugin.
    """
    return _CONTROL.sub(lambda found: found[0] if found[0] in keep else ascii(found[0])[1:-1], text)


def say(text: str) -> None:
    """A line on standard error, at once; no progress line is due after it."""
    print_error(harmless(text))
    touch()


def print_error(text: str) -> None:
    """
    Print on standard error, in one write.

    A full disk there, or a terminal that was closed, costs the lines, not the run: from then on
    they go nowhere.
    """
    try:
        print(f"{text}\n", end="", file=sys.stderr, flush=True)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        with suppress(AttributeError, OSError):  # what stands for a stream has no file
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def open_closed() -> None:
    """Give a stream that the caller closed (`2>&-`) a place of its own: not the next file's."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # it stays open as long as the process


class _Harmless:
    """A terminal as standard output that obeys nothing of what is printed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(harmless(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def harmless_output() -> Iterator[None]:
    """Within it, a terminal as standard output shows control characters rather than obey them."""
    before = sys.stdout
    if before.isatty():
        sys.stdout = _Harmless(before)
    try:
        yield
    finally:
        sys.stdout = before


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """
    Within it, what is printed goes to standard error: standard output is the command's.

    Unlike with `contextlib.redirect_stdout`, threads may be in it at a time: the last one gives
    standard output back.
    """
    global _redirects, _stdout
    with _REDIRECTING:
        _redirects += 1
        if _redirects == 1:
            _stdout, sys.stdout = sys.stdout, sys.stderr
    try:
        yield
    finally:
        with _REDIRECTING:
            _redirects -= 1
            if not _redirects:
                sys.stdout = _stdout


def redraw(text: str) -> None:
    """Overwrite the last line of standard error; text beyond the terminal's width is cut."""
    from rich.cells import set_cell_size  # here: `rlvr --help` needs no rich

    text = harmless(text, keep="")
    with suppress(OSError, ValueError):
        width = os.get_terminal_size(sys.stderr.fileno()).columns
        if width:  # a line that wraps is not overwritten whole
            text = set_cell_size(text, width - 1).rstrip()
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
            say(words + f", {told}" * bool(told) + f"; at {at}" * bool(at))
            silence_s = min(2 * silence_s, LONGEST_S)

    thread = threading.Thread(target=beat, daemon=True, name="rlvr-heartbeat")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _doing = None
