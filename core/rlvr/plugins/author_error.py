"""Places in the code of a plugin's author: of an error, in one line, and of what runs or waits."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any

from rlvr.errors import RlvrError, text_of
from rlvr.log import get
from rlvr.plugins.discovery import discover

log = get(__name__)

_LONGEST_CHAIN = 20
_DEEPEST = 1000
"""Frames of one task that are looked at."""
_RUNNING = (CoroutineType, AsyncGeneratorType, GeneratorType)
_STDLIB = Path(sysconfig.get_path("stdlib"))
_RLVR = Path(__file__).parents[1]
_DUMPED = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_BY_COMMAND = re.compile(rf'(?<!first\):)\n  File "{re.escape(str(_RLVR))}/cli/')
"""Where the calls begin by which the command came to a part; the innermost one tells of an exit."""
_logged: set[str] = set()
"""Tracebacks in the log so far: each is logged once."""


def passes(error: BaseException) -> bool:
    """
    Whether no author raised it: Ctrl-C, a run that is cancelled, or a coroutine that is closed.

    Call it in the frame that caught the error: closing raises `GeneratorExit` there, not below.
    """
    if isinstance(error, GeneratorExit):
        return error.__traceback__ is None or error.__traceback__.tb_next is None
    is_stopped = isinstance(error, asyncio.CancelledError) and _is_cancelled()
    return is_stopped or isinstance(error, KeyboardInterrupt)


def _is_cancelled() -> bool:
    """Whether the running task was cancelled; if not, a part raised the CancelledError itself."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop here: nobody can have cancelled it
        return False
    return task is not None and task.cancelling() > 0


def said(error: BaseException) -> str:
    """
    Class, text and place of an error in one line; its text may be long, or fail to be made.

    Of a group of errors the first one is named as well. Errors of rlvr have no place.
    """
    text, first = _text_of(error), error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    if first is not error:
        text += f"; the first: {_text_of(first)}"
    place = "" if isinstance(error, RlvrError) else place_of(error)
    return f"{text} ({place})" if place else text


def place_of(error: BaseException, *, in_library: bool = True) -> str:
    """
    `FILE:LINE` of the author's code that an error came from, "" where there is none.

    It is the innermost call outside rlvr, Python and the installed libraries that are no plugins;
    of an error without such a call, that of its cause; else the innermost call that rlvr made into
    a library, if that is wanted. A syntax error names its own line.
    """
    chain = list(_chain(error, _LONGEST_CHAIN))
    for one in chain:
        if isinstance(one, SyntaxError) and one.filename and os.path.isfile(one.filename):
            return f"{_shown(one.filename)}:{one.lineno}"
    calls = [list(_calls(one)) for one in chain]
    authors = [[call for call in made if _is_authors(call[0])] for made in calls]
    libraries = [[call for call in _after_ours(made) if _is_foreign(call[0])] for made in calls]
    for found in filter(None, [*authors, *(libraries if in_library else ())]):
        file, line = found[-1]
        return f"{_shown(file)}:{line}"
    return ""


def place_at_work(main: FrameType | None = None) -> str:
    """
    `FILE:LINE (function)` of the author's code that runs or waits, "" where there is none.

    The main thread comes first, by default as it is now; then the tasks of its event loop; then the
    other threads, the oldest first.
    """
    threads = dict(sys._current_frames())
    now = threads.pop(threading.main_thread().ident or 0, None)
    called = _callers(main or now)
    chains = [called, *_waiting(called), *map(_callers, reversed(threads.values()))]
    found = (
        _place((f.f_code.co_filename, f.f_lineno, f.f_code.co_name) for f in frames)
        for frames in chains
    )
    return next(filter(None, found), "")


def _callers(frame: FrameType | None) -> list[FrameType]:
    """A frame and its callers, the innermost first, up to the command that called the part."""
    found: list[FrameType] = []
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("rlvr.cli."):
        found.append(frame)
        frame = frame.f_back
    return found


def _waiting(called: Iterable[FrameType]) -> Iterator[list[FrameType]]:
    """The frames of each task of the event loop that runs there, the innermost first."""
    running = [f.f_locals.get("self") for f in called if f.f_code.co_name == "run_forever"]
    for task in [t for loop in running for t in asyncio.all_tasks(loop)]:
        found: list[FrameType] = []
        at: Any = task.get_coro()
        while at is not None and len(found) < _DEEPEST:
            kind = next((k for k in ("cr", "ag", "gi") if hasattr(at, f"{k}_frame")), "")
            if kind and (frame := getattr(at, f"{kind}_frame")) is not None:
                found.append(frame)
            waits = getattr(at, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)
            if waits is None and kind in ("", "gi"):  # of `__anext__`, or it steps another by hand
                waits = next((r for r in gc.get_referents(at) if isinstance(r, _RUNNING)), None)
            at = waits
        yield found[::-1]


def place_in_dump(text: str) -> str:
    """The same of what faulthandler wrote, of the main thread (the last) before all others."""
    for thread in reversed(text.split("\n\n")):
        if place := _place(_DUMPED.findall(_BY_COMMAND.split(thread)[0])):
            return place
    return ""


def _place(calls: Iterable[tuple[str, int | str, str]]) -> str:
    for file, line, function in calls:
        if not file.startswith("<") and _is_authors(file):
            return f"{_shown(file)}:{line} ({function})"
    return ""


def log_traceback(error: BaseException) -> None:
    """Write the traceback to the log, once: a run keeps it in `events.jsonl`, `-v` shows it."""
    text = "".join(traceback.format_exception(error, limit=-8))[-4000:]
    if text not in _logged:
        _logged.add(text)
        log.debug("part_raised", traceback=text)


def _text_of(error: BaseException) -> str:
    def without_line(error: Any) -> str:  # of a syntax error's text: its place says it
        return str(error.args[0] if isinstance(error, SyntaxError) and error.filename else error)

    text = " ".join(text_of(error, without_line).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _chain(error: BaseException, longest: int) -> Iterator[BaseException]:
    """The error, a group's first one before it, then what it was raised from."""
    if isinstance(error, BaseExceptionGroup) and longest:
        yield from _chain(error.exceptions[0], longest - 1)
    if isinstance(error.__cause__, StopIteration | StopAsyncIteration):  # that left a generator
        yield error.__cause__
    yield error
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and longest:
        yield from _chain(cause, longest - 1)


def _calls(error: BaseException) -> Iterator[tuple[str, int]]:
    """The files of a traceback's calls with their lines, the innermost last."""
    trace = error.__traceback__
    while trace is not None:
        if not (file := trace.tb_frame.f_code.co_filename).startswith("<"):  # that a program made
            yield file, trace.tb_lineno
        trace = trace.tb_next


def _after_ours(made: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """The calls after the last one of rlvr; none where rlvr is not among them: it called nobody."""
    ours = [place for place, (file, _) in enumerate(made) if Path(file).is_relative_to(_RLVR)]
    return made[ours[-1] + 1 :] if ours else []


def _is_authors(file: str) -> bool:
    if not _is_foreign(file):
        return False
    installed = re.search(r"/(?:site|dist)-packages/([^/]+?)(?:\.py)?(?:/|$)", file)
    return installed is None or installed[1] in _plugin_packages()


def _is_foreign(file: str) -> bool:
    """Whether a file is neither of rlvr nor of Python's own library."""
    path = Path(file)
    below = path.relative_to(_STDLIB).parts[0] if path.is_relative_to(_STDLIB) else ""
    return not path.is_relative_to(_RLVR) and below in ("", "site-packages", "dist-packages")


@cache
def _plugin_packages() -> frozenset[str]:
    return frozenset(found.target.partition(":")[0].partition(".")[0] for found in discover())


def _shown(file: str) -> str:
    """A path as short as it can be: from the working directory where the file is below it."""
    with suppress(OSError):  # the working directory was removed
        if Path(file).is_relative_to(Path.cwd()):
            return str(Path(file).relative_to(Path.cwd()))
    return file
