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

With five other programs on two cores the steps of a good reward held it 0.02 s a verification, at a
load of 6 to 9 once more than 0.05 s: a busy machine must not be taken for a reward that blocks.
"""


@define
class LoopWatch:
    """
    Times each step of the rewards' coroutines.

    A thread looks every two seconds, so that a step that never ends is named as well.
    """

    _now: tuple[float, str, str] | None = None
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
        steps = work.__await__()
        raised: BaseException | None = None
        while True:
            since = time.monotonic()
            self._now = since, who, problem
            try:
                waits_for = next(steps) if raised is None else steps.throw(raised)
            except StopIteration as done:
                return done.value
            finally:
                self._now = None
                self._account(since, who, problem, is_over=True)
            raised = None
            try:
                yield waits_for
            except BaseException as error:  # a cancellation: the work has to see it
                raised = error

    def _account(self, since: float, who: str, problem: str, *, is_over: bool) -> None:
        held = time.monotonic() - since
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
