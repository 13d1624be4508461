"""A limit on the time that `rlvr plugins check` waits for one step of a part."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import FrameType

from attrs import define, evolve, field

from rlvr.cli.plugins_report import Report
from rlvr.cli.watchdog import IMPORT_S, Watchdog
from rlvr.cli.watched_child import Step
from rlvr.errors import PartError
from rlvr.plugins.author_error import place_at_work, said
from rlvr.testing.process import ChangedError, nothing_changed

_AGAIN_S = 5.0
"""Time that an interrupted part has to clean up, before it is interrupted again."""
_GRACE_S = 2.0
"""Time after the limit until the process is ended, since no Python code runs in it any more: one
call of a C function such as `sum(range(10**12))`."""
_CLEAN_S = 7.0
"""The same where Python code was interrupted, which may clean up or ignore that."""


class HungError(KeyboardInterrupt):
    """A part did not come back: like Ctrl-C, so that no `except Exception` of it goes on."""


@define
class Deadline:
    """
    Interrupts steps that do not end; where that does not help, the watchdog's parent ends them.

    Attributes:
        limit_s: Time that one step may take; 0: any.
        note_s: Time after which a line on standard error says what is waited for.
        report: What the parent then prints.
        watchdog: Tells the parent of each step.
        changing: Parts that changed the process: told once, for each step may wait for what runs.
        kept: By part: processes that it keeps for all its work, such as a compiler.
        has_fired: Whether this step, or the last one, was interrupted.
        is_cancelled: Whether a person pressed Ctrl-C.
    """

    limit_s: float
    note_s: float
    report: Report
    watchdog: Watchdog
    changing: set[str] = field(factory=set, init=False)
    kept: dict[str, dict[object, str]] = field(factory=dict, init=False)
    has_fired: bool = field(default=False, init=False)
    is_cancelled: bool = field(default=False, init=False)

    @contextmanager
    def on(self, part: str, asked: str, target: str) -> Iterator[None]:
        """
        Wait for a step of a part, in words, in the main thread: others cannot be interrupted.

        Raises:
            HungError: It took longer than the limit; says so, and where the part was.
            ChangedError: It changed what all parts share, or left something running.
            PartError: It raised a KeyboardInterrupt of its own.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self.has_fired, where = False, ""

        def interrupt(_: int, frame: FrameType | None) -> None:
            nonlocal where
            if not self.has_fired:  # the first time: then it cleans up
                self.has_fired, where = True, place_at_work(frame)
                self.watchdog.extend(_CLEAN_S)
            at = f"; it was at {where}" if where else ""
            raise HungError(f"it did not return within {self.limit_s:g} s{at}")

        def cancel(signum: int, frame: FrameType | None) -> None:
            self.is_cancelled = True
            signal.default_int_handler(signum, frame)

        limit = f", at most {self.limit_s:g} s (--limit)" if self.limit_s else ""
        step = Step(
            words=f"{part}{limit}: {asked}",
            given=(part, asked, target, self.report),
            limit_s=self.limit_s,
            grace_s=_GRACE_S,
            note_s=self.note_s,
        )
        begun, handler = time.monotonic(), signal.signal(signal.SIGALRM, interrupt)
        if is_heard := signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, cancel)
        left_s, again_s = signal.getitimer(signal.ITIMER_REAL)
        self.watchdog.begin(step)
        self._set_alarm()
        try:
            kept = self.kept.setdefault(part, {})
            warn = partial(self.report.warn, part)
            with nullcontext() if part in self.changing else nothing_changed(kept, warn):
                yield
        except ChangedError:
            self.changing.add(part)
            raise
        except KeyboardInterrupt as error:
            if isinstance(error, HungError) or self.is_cancelled:
                raise
            raise PartError(said(error)) from error
        finally:
            if is_heard:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0)
            # what it left goes on until the next step: a thread, a `__del__`
            rest_s = self.limit_s and max(self.limit_s, IMPORT_S)
            self.watchdog.begin(evolve(step, limit_s=rest_s, note_s=math.inf))
            signal.signal(signal.SIGALRM, handler)
            if left_s:  # of a caller that limits the time of it all
                left_s = max(left_s - (time.monotonic() - begun), 0.001)
                signal.setitimer(signal.ITIMER_REAL, left_s, again_s)

    def beat(self) -> None:
        """The step gets on: its time begins anew."""
        self._set_alarm()
        self.watchdog.extend(self.limit_s and self.limit_s + _GRACE_S)

    def _set_alarm(self) -> None:
        if self.limit_s:
            signal.setitimer(signal.ITIMER_REAL, self.limit_s, _AGAIN_S)
