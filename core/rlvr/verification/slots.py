"""Limit how many verifications run at a time; others wait in the order of their ranks."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from attrs import define, field

Rank = tuple[float, ...]

LAST: Rank = (float("inf"),)
"""The rank behind all others."""


@define
class Slots:
    """
    A semaphore with ranks: the lowest rank first, then first come, first served.

    Attributes:
        count: Number of slots.
    """

    count: int
    _free: int = field(init=False)
    _waiting: list[tuple[Rank, int, asyncio.Future[None]]] = field(factory=list, init=False)
    _numbers: Iterator[int] = field(factory=itertools.count, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)

    @asynccontextmanager
    async def taken(self, rank: Rank) -> AsyncIterator[None]:
        """Wait for a slot, and hold it while the block runs."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # what another loop left behind never goes on
            self._loop, self._free, self._waiting = loop, self.count, []
        turn: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._waiting, (rank, next(self._numbers), turn))
        loop.call_soon(self._serve)  # and not at once: of those that ask now the first may be last
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the slot was ours already
                self._give()
            raise
        try:
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
