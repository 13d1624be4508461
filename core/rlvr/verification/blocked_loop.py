"""Warn of a reward that blocks the event loop, which stops everything else of the run."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Generator
from functools import cache
from types import coroutine
from typing import Any

from attrs import define, field

from rlvr.border.calls import label
from rlvr.log import get

log = get(__name__)

_LONG_S = 2.0
"""Seconds that one step of a coroutine may hold the loop without a warning."""
_OFTEN_S, _EACH_S = 2.0, 0.1
"""
Seconds that all steps of a reward may hold it, in sum and for each verification.

A busy machine must not be taken for a reward that blocks: time in which the thread waited for a
processor does not count where the system tells it. With five other programs on two cores the steps
of a good reward held it 0.02 s a verification, at a load of 6 to 9 once more than 0.05 s.
"""


@define
class LoopWatch:
    """
    Times each step of the rewards' coroutines.

    A thread looks every two seconds, so that a step that never ends is named as well.
    """

    _now: tuple[float, int, str, str] | None = None
    _spent: dict[str, tuple[float, int]] = field(factory=dict)
    _named: set[str] = field(factory=set)

    @staticmethod
    @cache
    def shared() -> LoopWatch:
        """The watch of this process, with its thread."""
        watch = LoopWatch()
        threading.Thread(target=watch._look, daemon=True, name="rlvr-loop-watch").start()
        return watch

    @coroutine
    def around(
        self, work: Awaitable[Any], reward: object, problem: str
    ) -> Generator[Any, Any, Any]:
        """Await the work of a reward, and time each of its steps."""
        who = label(reward, "reward")
        total, count = self._spent.get(who, (0.0, 0))
        self._spent[who] = total, count + 1
        steps, thread = work.__await__(), threading.get_native_id()
        raised: BaseException | None = None
        while True:
            self._now = now = time.monotonic() - _queued_s(thread), thread, who, problem
            try:
                waits_for = next(steps) if raised is None else steps.throw(raised)
            except StopIteration as done:
                return done.value
            finally:
                self._now = None
                self._account(*now, is_over=True)
            raised = None
            try:
                yield waits_for
            except BaseException as error:  # a cancellation: the work has to see it
                raised = error

    def _account(self, since: float, thread: int, who: str, problem: str, *, is_over: bool) -> None:
        held = time.monotonic() - _queued_s(thread) - since
        total, count = self._spent.get(who, (0.0, 0))
        if is_over:
            self._spent[who] = total, count = total + held, count
        is_often = total > _OFTEN_S and total > _EACH_S * count
        if (held > _LONG_S or is_often) and who not in self._named:
            self._named.add(who)
            log.warning(
                "reward_blocks_the_event_loop",
                reward=who,
                problem=problem,
                seconds=round(held if held > _LONG_S else total / count, 2),
                do="await what takes long, or write `def __call__` without async: that runs in "
                "a thread",
            )

    def _look(self) -> None:
        while True:
            time.sleep(_LONG_S)
            if (now := self._now) is not None:
                self._account(*now, is_over=False)


def _queued_s(thread: int) -> float:
    """Seconds that a thread has waited for a processor; 0 where the system does not tell."""
    try:
        with open(f"/proc/self/task/{thread}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
