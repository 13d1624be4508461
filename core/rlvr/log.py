"""Logs: named events with values, to standard error and always to the run's `events.jsonl`.

Events are past facts in snake_case, values are keys: `log.info("groups_scored", step=12)`.
structlog is imported at the first event, so that commands which log nothing do not pay for it.
The text of prompts and completions is never logged: such keys are replaced by their length.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PRIVATE = frozenset({"prompt", "messages", "completion", "completions", "answer", "text"})
_LEVELS = {2: "debug", 1: "debug", 0: "info", -1: "warning", -2: "error"}

EventDict = MutableMapping[str, Any]


_is_plain = False


@contextmanager
def plain_lines() -> Iterator[None]:
    """Within a command: lines for people on standard error, also where it is no terminal."""
    global _is_plain
    _is_plain = True
    try:
        yield
    finally:
        _is_plain = False


class Log:
    """A named logger. Cheap to make at import; the machinery starts with the first event."""

    def __init__(self, name: str) -> None:
        self.name = name

    def debug(self, event: str, **values: Any) -> None:
        """Log what only a developer wants to know."""
        self._write("debug", event, values)

    def info(self, event: str, **values: Any) -> None:
        """Log a fact of the run."""
        self._write("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        """Log what a person should look at."""
        self._write("warning", event, values)

    def error(self, event: str, **values: Any) -> None:
        """Log a failure."""
        self._write("error", event, values)

    def exception(self, event: str, **values: Any) -> None:
        """Log a failure with the traceback of the exception being handled."""
        self._write("error", event, {"exc_info": True, **values})

    def _write(self, level: str, event: str, values: dict[str, Any]) -> None:
        import structlog

        if not structlog.is_configured():
            setup()
        getattr(structlog.get_logger(), level)(event, logger=self.name, **values)


def get(name: str) -> Log:
    """A module's logger, named like the module."""
    return Log(name)


def setup(*, verbosity: int = 0, json: bool | None = None, run_file: Path | None = None) -> None:
    """
    Say where events go. May be called again; the last call counts.

    Args:
        verbosity: 1 adds debug events on standard error, -1 leaves warnings, -2 only errors.
        json: JSON Lines on standard error; None: where it is no terminal and no command runs
            (`plain_lines`).
        run_file: Also append every event, of any level, as JSON Lines to this file.
    """
    import structlog

    lowest = _LEVELS[max(-2, min(2, verbosity))]
    as_json = not (_is_plain or sys.stderr.isatty()) if json is None else json
    renderer: Any = (
        structlog.processors.JSONRenderer(default=str)
        if as_json
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            exception_formatter=structlog.dev.default_exception_formatter
            if sys.stderr.isatty()
            else structlog.dev.plain_traceback,
        )
    )
    tail: list[Any] = [structlog.processors.format_exc_info] if as_json else []
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _keep_private,
            *([_RunFile(run_file)] if run_file is not None else []),
            _Threshold(lowest),
            *tail,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        # not cached: a live display or a test may replace sys.stderr at any time
        cache_logger_on_first_use=False,
    )


def bind(**values: Any) -> None:
    """Add values (`run_id`, `step`) to every following event of this context."""
    import structlog

    structlog.contextvars.bind_contextvars(**values)


def unbind(*keys: str) -> None:
    """Take bound values away again."""
    import structlog

    structlog.contextvars.unbind_contextvars(*keys)


def _keep_private(_logger: Any, _method: str, event: EventDict) -> EventDict:
    for key in _PRIVATE & event.keys():
        event[key] = f"<{len(str(event[key]))} characters>"
    return event


class _Threshold:
    """Drops events below a level. Stands behind the run file, which keeps them."""

    def __init__(self, lowest: str) -> None:
        self._lowest = logging.getLevelNamesMapping()[lowest.upper()]

    def __call__(self, _logger: Any, method: str, event: EventDict) -> EventDict:
        import structlog

        if logging.getLevelNamesMapping()[method.upper()] < self._lowest:
            raise structlog.DropEvent
        return event


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
