"""Limit how many verifications or programs run at a time; others wait in the order of their ranks.

A verification's deadline does not count the time that it waits for a slot (`Clock`), nor the time
that work which it shares with others waits for one (`SingleFlight`).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, Generic, TypeVar

from attrs import define, field

from rlvr.concurrency import end

__all__ = ["SingleFlight", "Slots"]

T = TypeVar("T")
Rank = tuple[float, ...]

LAST: Rank = (float("inf"),)
"""The rank behind all others."""


@define(eq=False)
class Clock:
    """
    Times one verification; it stands still while that waits for a slot and holds none.

    Work that hangs in a slot is timed although another part of its verification waits for one.
    Work that several verifications share has a clock of its own: theirs stand still when it does.
    """

    _past: float = 0.0
    _since: float = field(factory=time.monotonic)
    _waiting: int = 0
    _held: int = 0
    _followers: list[Clock] = field(factory=list)

    def seconds(self) -> float:
        """Seconds counted so far."""
        is_still = self._waiting and not self._held
        return self._past + (0.0 if is_still else time.monotonic() - self._since)

    @contextmanager
    def during(self, *, waiting: int = 0, held: int = 0) -> Iterator[None]:
        """In the block the work waits for, or holds, this many more slots."""
        self._add(waiting, held)
        try:
            yield
        finally:
            self._add(-waiting, -held)

    @contextmanager
    def followed_by(self, other: Clock) -> Iterator[None]:
        """In the block the other verification waits for what this clock's work waits for."""
        other._add(self._waiting, self._held)
        self._followers.append(other)
        try:
            yield
        finally:
            self._followers.remove(other)
            other._add(-self._waiting, -self._held)

    def _add(self, waiting: int, held: int) -> None:
        self._past, self._since = self.seconds(), time.monotonic()
        self._waiting += waiting
        self._held += held
        for follower in self._followers:
            follower._add(waiting, held)


CLOCK: ContextVar[Clock | None] = ContextVar("CLOCK", default=None)
"""The clock of the verification that this code is a part of."""


@define
class Slots:
    """
    A semaphore with ranks: the lowest rank first, then first come, first served.

    The time that a verification waits for a slot does not count against its deadline.

    Attributes:
        count: Number of slots.
    """

    count: int
    _free: int = field(init=False)
    _waiting: list[tuple[Rank, int, asyncio.Future[None]]] = field(factory=list, init=False)
    _numbers: Iterator[int] = field(factory=itertools.count, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)

    @asynccontextmanager
    async def taken(self, rank: Rank = ()) -> AsyncIterator[None]:
        """Wait for a slot, and hold it while the block runs."""
        loop, clock = asyncio.get_running_loop(), CLOCK.get() or Clock()
        if self._loop is not loop:  # what another loop left behind never goes on
            self._loop, self._free, self._waiting = loop, self.count, []
        turn: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._waiting, (rank, next(self._numbers), turn))
        loop.call_soon(self._serve)  # and not at once: of those that ask now the first may be last
        try:
            with clock.during(waiting=1):
                await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the slot was ours already
                self._give()
            raise
        try:
            with clock.during(held=1):
                yield
        finally:
            self._give()

    def _give(self) -> None:
        self._free += 1
        self._serve()

    def _serve(self) -> None:
        while self._free and self._waiting:
            *_, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._free -= 1
                turn.set_result(None)


@define(eq=False)
class _Flight(Generic[T]):
    task: asyncio.Task[T]
    clock: Clock
    askers: int = 0


@define
class SingleFlight(Generic[T]):
    """
    Work that is done once for all who ask for it under one key at the same time.

    Results are not kept. While the work waits for a slot (`Slots`), no asker's deadline runs.
    """

    _flying: dict[str, _Flight[T]] = field(factory=dict, init=False)

    def __contains__(self, key: str) -> bool:
        """Whether it is under way."""
        return key in self._flying

    async def done(self, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """
        The result of the work under way, else of `work()`; its exception is raised to all.

        The work ends with its last asker: cancelling the others leaves it alone.
        """
        flight = self._flying.get(key)
        if flight is None:
            clock, context = Clock(), copy_context()
            context.run(CLOCK.set, clock)
            flight = _Flight(asyncio.create_task(work(), context=context), clock)
            self._flying[key] = flight
        flight.askers += 1
        try:
            with flight.clock.followed_by(CLOCK.get() or Clock()):
                return await asyncio.shield(flight.task)
        finally:
            flight.askers -= 1
            if not flight.askers:
                del self._flying[key]
                await end([flight.task])

    async def stop(self) -> None:
        """Cancel all that is under way, and wait for its end."""
        await end([flight.task for flight in self._flying.values()])
