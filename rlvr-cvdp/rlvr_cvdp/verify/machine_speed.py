"""How fast this machine computes at this moment: a small piece of work, timed."""

from __future__ import annotations

import asyncio
import statistics
import time

_ROUNDS = 5
_WORK = 30_000
_FRESH_S = 10.0


def probe_s() -> float:
    """
    Processor time of a fixed piece of work in seconds: the median of five times.

    Neighbours on a shared machine (caches, hyperthreads, stolen time) make the same work take more
    processor time; they do the same to a simulation. Takes about 10 ms.
    """
    return statistics.median(_worked() for _ in range(_ROUNDS))


def _worked() -> float:
    begun = time.thread_time()
    total = 0
    for number in range(_WORK):
        total = (total * 31 + number) & 0xFFFF
    return time.thread_time() - begun


class Speed:
    """The machine's speed; measured again when it is asked for and the last value is old."""

    def __init__(self) -> None:
        self._measured = 0.0
        self._probe_s = 0.0

    async def now_s(self, *, is_fresh: bool = False) -> float:
        """What `probe_s` gives at this moment, or gave within the last ten seconds."""
        if is_fresh or not self._measured or time.monotonic() - self._measured > _FRESH_S:
            self._probe_s = await asyncio.to_thread(probe_s)
            self._measured = time.monotonic()
        return self._probe_s
