"""What a sandbox has used so far: processor time of its processes, size of its folder."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process, its ended children, and all that live below it, in seconds."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal():
            continue
        try:
            text = Path(entry.path, "stat").read_text()
        except OSError:
            continue  # it ended meanwhile
        fields = text.rpartition(")")[2].split()
        parents[int(entry.name)] = int(fields[1])
        ticks[int(entry.name)] = sum(int(number) for number in fields[11:15])
    total = 0
    for process in parents:
        above = process
        while above not in (0, pid):
            above = parents.get(above, 0)
        total += ticks[process] if above == pid else 0
    return total / _TICKS


def size_over(folder: Path, limit: int) -> bool:
    """Whether the files below a folder take more than `limit` bytes on the disk."""
    total = 0
    waiting = [str(folder)]
    while waiting:
        try:
            for entry in os.scandir(waiting.pop()):
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue  # it was removed meanwhile
    return total > limit
