"""What the service has answered lately, seen from outside the SDK.

The SDK repeats a request that failed with a 5xx at once and for ever, waits silently through 429,
and pauses up to an hour on 402. Nothing of it reaches its caller, but httpx logs every answer.
"""

from __future__ import annotations

import collections
import logging
import time
from typing import ClassVar

MOST_FAILURES = 50
"""Answers 5xx in a row after which no further one is waited for."""
_LOGGER = logging.getLogger("httpx")
_RETRIED = frozenset({402, 408, 409, 429})


class Health(logging.Filter):
    """
    Counts answers by status while it is `watching`; a filter of httpx's own log.

    Attributes:
        failures: Answers 5xx in a row.
        progressed: When something was last finished (`time.monotonic`).
    """

    # level of httpx's log before, and whether its lines were shown
    _before: ClassVar[tuple[int, bool]] = (logging.NOTSET, True)

    def __init__(self, url: str = "") -> None:
        """`url` is the service's: answers of others do not count."""
        super().__init__()
        self._url = url
        self._lately: collections.deque[int] = collections.deque(maxlen=20)
        self.failures, self.progressed = 0, time.monotonic()

    def start(self) -> None:
        """Begin to watch."""
        if not _watchers():
            Health._before = _LOGGER.level, _LOGGER.isEnabledFor(logging.INFO)
            if not Health._before[1]:
                _LOGGER.setLevel(logging.INFO)
        _LOGGER.addFilter(self)

    def stop(self) -> None:
        """Watch no longer; httpx's log is as before."""
        _LOGGER.removeFilter(self)
        if not _watchers():
            _LOGGER.setLevel(Health._before[0])

    def filter(self, record: logging.LogRecord) -> bool:
        """Note an answer; the line is shown only if it would be shown without this filter."""
        watchers = _watchers()
        # the first one notes it for all: logging stops at a filter that says no
        if watchers[:1] == [self]:
            url, status = _answer(record)
            if status is not None:
                for one in watchers:
                    one._note(url, status)
        return Health._before[1] or record.levelno > logging.INFO

    def _note(self, url: str, status: int) -> None:
        if url.startswith(self._url):
            self.failures = self.failures + 1 if status >= 500 else 0
            if status >= 500 or status in _RETRIED:
                self._lately.append(status)

    def finished(self) -> None:
        """A request was answered in full."""
        self.progressed = time.monotonic()
        self._lately.clear()

    @property
    def is_failing(self) -> bool:
        """True after `MOST_FAILURES` in a row: waiting longer is pointless."""
        return self.failures >= MOST_FAILURES

    def forget(self) -> None:
        """Start to count anew, after a reconnection."""
        self.failures = 0
        self.finished()

    @property
    def lately(self) -> tuple[int, ...]:
        """Statuses of failed answers since something last finished."""
        return tuple(self._lately)


def _watchers() -> list[Health]:
    return [one for one in _LOGGER.filters if isinstance(one, Health)]


def _answer(record: logging.LogRecord) -> tuple[str, int | None]:
    """URL and status in httpx's line `HTTP Request: METHOD URL "VERSION STATUS REASON"`."""
    args = record.args
    if isinstance(args, tuple) and len(args) == 5 and isinstance(args[3], int):
        return str(args[1]), args[3]
    return "", None
