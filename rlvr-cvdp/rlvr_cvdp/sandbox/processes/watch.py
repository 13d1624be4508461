"""Looks at what a running command uses, so that it can be stopped."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from rlvr_cvdp.sandbox.processes.accounting import (
    memory_over,
    size_over,
    sockets_over,
    unlinked_over,
)
from rlvr_cvdp.sandbox.processes.process import SandboxProcess
from rlvr_cvdp.sandbox.records import MEGABYTE, Limits

LOOK_S = 0.1
"""
How often to look. A fork bomb makes some thousand processes in this time, and a machine has room
for 32,768.
"""
TOGETHER = 2
"""All processes may hold as much memory as so many at their own limit."""
_SELDOM_S = 0.5
_BUSY_SHARE = 0.1
_IDLE_SHARE = 0.01
"""What a process that only wakes up to look around computes, at most, of the time."""


class LimitMonitor:
    """
    A command's limits that the system does not hold: begins with the command.

    Args:
        folder: What must not grow beyond its limit.
        limits: What the command may use.
        process: The sandbox in which the command runs.
    """

    def __init__(self, folder: Path, limits: Limits, process: SandboxProcess) -> None:
        self._folder, self._limits, self._process = folder, limits, process
        self.begun = self._seen = time.monotonic()
        self._cpu_begun = self._cpu_busy = process.activity()[0]
        self._idle_s = self._waited_s = 0.0

    async def wait(
        self, reading: asyncio.Task[bool], reply: asyncio.Task[Any] | None = None
    ) -> str:
        """
        Wait for the command's end; gives what it must be stopped for, "" when it ended.

        Args:
            reading: Gives False where the command wrote more than it may.
            reply: Where the command has not ended before it, though its output may have.
        """
        ending = reply or reading
        while True:
            waiting = {ending} if reading.done() else {ending, reading}
            await asyncio.wait(waiting, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and not reading.result():
                return "output"
            if ending.done():
                return ""
            if stopped := self.excess():
                return stopped

    def excess(self) -> str:
        """What the command must be stopped for by now (see `Finished.stopped`), "" for nothing."""
        now = time.monotonic()
        if self._process.is_crowded(self._limits.processes):
            return "processes"
        pid, memory = self._process.pid, TOGETHER * self._limits.memory_mb * MEGABYTE
        if memory_over(pid, memory) or sockets_over(pid, self._limits.processes):
            return "memory"
        if now >= self._seen + _SELDOM_S:
            passed, self._seen = min(now - self._seen, 2 * _SELDOM_S), now
            # Time between two looks that are far apart does not count in full.
            limit = self._limits.disk_mb * MEGABYTE
            if size_over(self._folder, limit) or unlinked_over(pid, self._folder, limit):
                return "disk"
            cpu_s, is_busy = self._process.activity()
            if cpu_s - self._cpu_begun > self._limits.cpu_s:
                return "time"
            if self._is_idle(passed, cpu_s, is_busy):
                return "idle"
            # What is about to compute waits for the machine, which may be busy for long.
            self._waited_s += passed * (_BUSY_SHARE if is_busy else 1.0)
        return "wall" if self._waited_s >= self._limits.wall_s else ""

    def _is_idle(self, passed: float, cpu_s: float, is_busy: bool) -> bool:
        self._idle_s += passed
        if is_busy or cpu_s - self._cpu_busy > _IDLE_SHARE * self._idle_s:
            self._idle_s, self._cpu_busy = 0.0, cpu_s
        return 0 < self._limits.idle_s <= self._idle_s
