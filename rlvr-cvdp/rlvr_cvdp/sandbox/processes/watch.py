"""Looks at what a running command uses, so that it can be stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rlvr_cvdp.sandbox.processes.accounting import (
    memory_over,
    size_over,
    sockets_over,
    unlinked_over,
)
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


class Watch:
    """
    A command's limits that the system does not hold: begins with the command.

    Args:
        folder: What must not grow beyond its limit.
        limits: What the command may use.
        pid: The first process of the sandbox, as this machine sees it.
        is_crowded: Whether more processes than a number live in the sandbox.
        activity: What the sandbox has computed, in seconds, and whether something in it is about
            to compute (see `processes.accounting.activity`).
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits,
        pid: int,
        *,
        is_crowded: Callable[[int], bool],
        activity: Callable[[], tuple[float, bool]],
    ) -> None:
        self._folder, self._limits, self._pid = folder, limits, pid
        self._is_crowded, self._activity = is_crowded, activity
        self.begun = self._seen = time.monotonic()
        self._cpu_begun = self._cpu_busy = activity()[0]
        self._idle_s = self._waited_s = 0.0

    def excess(self) -> str:
        """What the command must be stopped for by now (see `Finished.stopped`), "" for nothing."""
        now = time.monotonic()
        if self._is_crowded(self._limits.processes):
            return "processes"
        if memory_over(self._pid, TOGETHER * self._limits.memory_mb * MEGABYTE):
            return "memory"
        if sockets_over(self._pid, self._limits.processes):
            return "memory"
        if now >= self._seen + _SELDOM_S:
            passed, self._seen = min(now - self._seen, 2 * _SELDOM_S), now
            # Time at which nobody looked does not count.
            limit = self._limits.disk_mb * MEGABYTE
            if size_over(self._folder, limit) or unlinked_over(self._pid, self._folder, limit):
                return "disk"
            cpu_s, is_busy = self._activity()
            if cpu_s - self._cpu_begun > self._limits.cpu_s:
                return "time"
            if self._is_idle(passed, cpu_s, is_busy):
                return "idle"
            # What is about to compute waits for the machine, which may be busy for long.
            self._waited_s += passed * (_BUSY_SHARE if is_busy else 1.0)
        return "wall" if self._waited_s >= self._limits.wall_s else ""

    def _is_idle(self, passed: float, cpu_s: float, is_busy: bool) -> bool:
        """Whether nothing was computed for too long."""
        self._idle_s += passed
        if is_busy or cpu_s - self._cpu_busy > _IDLE_SHARE * self._idle_s:
            self._idle_s, self._cpu_busy = 0.0, cpu_s
        return 0 < self._limits.idle_s <= self._idle_s
