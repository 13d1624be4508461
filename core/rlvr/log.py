"""Logs: named events with values, to standard error and always to the run's `events.jsonl`.

Events are past facts in snake_case, values are keys: `log.info("groups_scored", step=12)`.
structlog is imported at the first event, so that commands which log nothing do not pay for it.
The text of prompts and completions is never logged: such keys are replaced by their length.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partialmethod
from pathlib import Path
from typing import Any

from rlvr.heartbeat import harmless, is_coloured, open_closed, print_error

_PRIVATE = frozenset({"prompt", "messages", "completion", "completions", "answer", "text"})
_LEVELS = {2: "debug", 1: "debug", 0: "info", -1: "warning", -2: "error"}

EventDict = MutableMapping[str, Any]


_is_plain: ContextVar[bool] = ContextVar("is_plain", default=False)
_steps: ContextVar[Sequence[Any]] = ContextVar("steps")
"""What each event of the command of this context passes through: several may run in threads."""
_latest: Sequence[Any] = ()
"""The steps of the last `setup`, for threads that know no context."""
_BORROWING = threading.Lock()
_borrowers, _lender = 0, dict[str, Any]()


@contextmanager
def plain_lines() -> Iterator[None]:
    """Within a command: lines for people on standard error, also where it is no terminal."""
    before = _is_plain.set(True)
    try:
        yield
    finally:
        _is_plain.reset(before)


@contextmanager
def borrowed() -> Iterator[None]:
    """
    Within a function of the command line: `plain_lines`; then events go where they went.

    Functions may run in threads at a time: the last one to end gives structlog back.
    """
    import structlog

    global _borrowers, _latest, _lender
    open_closed()
    with _BORROWING:
        if not _borrowers:
            _lender = structlog.get_config() if structlog.is_configured() else {}
        _borrowers += 1
    before = _steps.set(_steps.get(_latest))
    try:
        with plain_lines():
            yield
    finally:
        _steps.reset(before)
        _latest = _steps.get(_latest)  # those of a command that this one ran within
        with _BORROWING:
            _borrowers -= 1
            if not _borrowers:
                structlog.reset_defaults()
                if _lender:
                    structlog.configure(**_lender)


class _Printer:
    """The end of structlog's way: it prints what `_deliver` made of an event."""

    def debug(self, line: str) -> None:
        print_error(line)

    info = warning = error = critical = debug


class Log:
    """A logger of a module. Cheap to make at import; structlog starts with the first event."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _write(self, level: str, event: str, /, **values: Any) -> None:
        import structlog

        if not structlog.is_configured():
            setup()
        getattr(structlog.get_logger(), level)(event, logger=self.name, **values)

    debug = partialmethod(_write, "debug")
    info = partialmethod(_write, "info")
    warning = partialmethod(_write, "warning")
    error = partialmethod(_write, "error")
    exception = partialmethod(_write, "error", exc_info=True)
    """With the traceback of the exception being handled."""


def get(name: str) -> Log:
    """A module's logger, named like the module."""
    return Log(name)


def setup(*, verbosity: int = 0, json: bool | None = None, run_file: Path | None = None) -> None:
    """
    Say where events go. May be called again; the last call of a context counts.

    Args:
        verbosity: 1 adds debug events on standard error, -1 leaves warnings, -2 only errors.
        json: JSON Lines on standard error; None: where it is no terminal and no command runs
            (`plain_lines`).
        run_file: Also append every event, of any level, as JSON Lines to this file.
    """
    import structlog

    processors = structlog.processors
    as_json = not (_is_plain.get() or sys.stderr.isatty()) if json is None else json
    if as_json:
        tail: list[Any] = [processors.JSONRenderer(default=str)]
    else:
        dev, colors = structlog.dev, is_coloured(sys.stderr)
        plain = dev.ConsoleRenderer(colors=colors, exception_formatter=dev.plain_traceback)
        tail = [_escape_controls, plain]
    global _latest
    _latest = [
        structlog.contextvars.merge_contextvars,
        processors.add_log_level,
        processors.TimeStamper(fmt="iso", utc=True),
        _keep_private,
        *([_RunFile(run_file)] if run_file is not None else []),
        _drop_below(_LEVELS[max(-2, min(2, verbosity))]),
        processors.format_exc_info,
        *tail,
    ]
    _steps.set(_latest)
    structlog.configure(
        processors=[_deliver],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=lambda *_: _Printer(),
        # not cached: a live display or a test may replace sys.stderr at any time
        cache_logger_on_first_use=False,
    )


@contextmanager
def bound(**values: Any) -> Iterator[None]:
    """Add values (`run_id`, `step`) to every event within the block."""
    import structlog

    with structlog.contextvars.bound_contextvars(**values):
        yield


def _deliver(logger: Any, method: str, event: EventDict) -> Any:
    """Take an event through the steps of the command that it comes from."""
    for step in _steps.get(_latest):
        event = step(logger, method, event)
    return event


def _keep_private(_logger: Any, _method: str, event: EventDict) -> EventDict:
    for key in _PRIVATE & event.keys():
        event[key] = f"<{len(str(event[key]))} characters>"
    return event


def _escape_controls(_logger: Any, _method: str, event: EventDict) -> EventDict:
    r"""Write control characters out (`\n`): an event stays on its line and colours nothing."""
    for key, value in event.items():
        keep = "\n\t" if key == "exception" else ""
        if (shown := harmless(text := str(value), keep=keep)) != text:
            event[key] = shown
    return event


def _drop_below(lowest: str) -> Callable[[Any, str, EventDict], EventDict]:
    """Drop events below a level. Stands behind the run file, which keeps them."""
    import structlog

    levels = logging.getLevelNamesMapping()

    def drop(_logger: Any, method: str, event: EventDict) -> EventDict:
        if levels[method.upper()] < levels[lowest.upper()]:
            raise structlog.DropEvent
        return event

    return drop


class _RunFile:
    """Appends each event as one JSON line; says once on standard error where that fails."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._has_failed = False

    def __call__(self, logger: Any, method: str, event: EventDict) -> EventDict:
        import structlog

        copy = structlog.processors.format_exc_info(logger, method, dict(event))
        line = structlog.processors.JSONRenderer(default=str)(logger, method, copy)
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{line!s}\n")
        except OSError as error:  # a full disk must not stop the run over a log line
            if not self._has_failed:
                print(f"rlvr: cannot write {self._path}: {error}", file=sys.stderr)
            self._has_failed = True
        return event
