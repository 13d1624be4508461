"""Looks at what a running command uses, so that it can be stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rlvr_cvdp.accounting import size_over
from rlvr_cvdp.sandbox.records import MEGABYTE, Limits

_LOOK_S = 0.1
"""A fork bomb makes some thousand processes in this time, and a machine has room for 32,768."""
_FOLDER_S = 0.5


class Watch:
    """
    A command's limits that the system does not hold: begins with the command.

    `is_crowded` says whether more processes than a number live in the sandbox.
    """

    def __init__(self, folder: Path, limits: Limits, is_crowded: Callable[[int], bool]) -> None:
        self._folder, self._limits, self._is_crowded = folder, limits, is_crowded
        self.begun = time.monotonic()
        self._folder_seen = self.begun

    def pause_s(self) -> float:
        """How long to wait before the next look."""
        left = self.begun + self._limits.wall_s - time.monotonic()
        return max(0.0, min(left, _LOOK_S))

    def excess(self) -> str:
        """What the command must be stopped for by now (see `Finished.stopped`), "" for nothing."""
        now = time.monotonic()
        if now >= self.begun + self._limits.wall_s:
            return "time"
        if self._is_crowded(self._limits.processes):
            return "processes"
        if now >= self._folder_seen + _FOLDER_S:
            self._folder_seen = now
            if size_over(self._folder, self._limits.disk_mb * MEGABYTE):
                return "disk"
        return ""
