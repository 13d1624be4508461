"""Keeps warm workers and lends them, one problem at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from rlvr_cvdp.sandbox.worker import Worker
from rlvr_cvdp.toolchain.cocotb_stacks import Stack


class Pool:
    """
    At most `most` warm workers that wait; more may run at once, and end when they are given back.

    A worker is made when one is asked for and none waits.
    """

    def __init__(self, start: Callable[[Stack], Awaitable[Worker]], most: int) -> None:
        self._start = start
        self._most = most
        self._waiting: list[Worker] = []

    @asynccontextmanager
    async def worker(self, stack: Stack) -> AsyncIterator[Worker]:
        """A worker with an empty slot."""
        worker = self._take(stack) or await self._start(stack)
        try:
            yield worker
        finally:
            if worker.is_usable:
                worker.renew()
            if worker.is_usable:
                self._waiting.append(worker)
                surplus = self._waiting[: max(0, len(self._waiting) - self._most)]
                del self._waiting[: len(surplus)]
            else:
                surplus = [worker]
            for each in surplus:
                await each.close()

    def _take(self, stack: Stack) -> Worker | None:
        for place in reversed(range(len(self._waiting))):
            if self._waiting[place].stack == stack:
                return self._waiting.pop(place)
        return None

    async def close(self) -> None:
        """End all that wait."""
        waiting, self._waiting = self._waiting, []
        await asyncio.gather(*(worker.close() for worker in waiting))
