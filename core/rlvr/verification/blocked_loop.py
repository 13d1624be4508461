"""Warn of a reward that blocks the event loop, which stops everything else of the run."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Generator
from functools import cache
from typing import Any

from attrs import define, field

from rlvr.border.calls import label
from rlvr.log import get

log = get(__name__)

_LONG_S = 0.5
"""A step of a coroutine that holds the loop for this is noticed."""
_OFTEN_S, _EACH_S = 2.0, 0.05
"""So is a reward that held it so long together, and so long for each verification."""


@define
class LoopWatch:
    """
    Times each step of the rewards' coroutines.

    A thread looks every half second, so that a step that never ends is named as well.
    """

    _now: tuple[float, object, str] | None = None
    _spent: dict[str, tuple[float, int]] = field(factory=dict)
    _named: set[str] = field(factory=set)

    @staticmethod
    @cache
    def shared() -> LoopWatch:
        """The one of this process, with its thread."""
        watch = LoopWatch()
        threading.Thread(target=watch._look, daemon=True, name="rlvr-loop-watch").start()
        return watch

    async def around(self, work: Awaitable[Any], reward: object, problem: str) -> Any:
        """Await the work of a reward, and time each of its steps."""
        who = label(reward, "reward")
        total, count = self._spent.get(who, (0.0, 0))
        self._spent[who] = total, count + 1
        return await _Steps(self, work, reward, problem)

    def begin(self, reward: object, problem: str) -> None:
        """A step begins."""
        self._now = (time.monotonic(), reward, problem)

    def end(self) -> None:
        """It has ended, or waits."""
        now, self._now = self._now, None
        if now is not None:
            self._account(*now, is_over=True)

    def _account(self, since: float, reward: object, problem: str, *, is_over: bool) -> None:
        held = time.monotonic() - since
        who = label(reward, "reward")
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
                seconds=round(held, 2),
                do="await what takes long, or write `def __call__` without async: that runs in "
                "a thread",
            )

    def _look(self) -> None:
        while True:
            time.sleep(_LONG_S)
            if (now := self._now) is not None:
                self._account(*now, is_over=False)


class _Steps:
    """An awaitable that drives another one step by step."""

    def __init__(self, watch: LoopWatch, work: Awaitable[Any], reward: object, problem: str):
        self._watch, self._work = watch, work
        self._of = (reward, problem)

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        raised: BaseException | None = None
        while True:
            self._watch.begin(*self._of)
            try:
                waits_for = next(steps) if raised is None else steps.throw(raised)
            except StopIteration as done:
                return done.value
            finally:
                self._watch.end()
            raised = None
            try:
                yield waits_for
            except BaseException as error:  # a cancellation: the work has to see it
                raised = error
