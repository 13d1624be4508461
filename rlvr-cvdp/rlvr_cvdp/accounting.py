"""What a sandbox has used so far: processor time, processes, size of its folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_THREADS = 4
"""Threads to a process, on average: numerical libraries start one for each core of the machine."""


def cpu_seconds(pid: int) -> float:
    """Processor time of a process, its ended children, and all that live below it, in seconds."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            text = Path("/proc", name, "stat").read_text()
        except OSError:
            continue  # it ended meanwhile
        fields = text.rpartition(")")[2].split()
        parents[int(name)] = int(fields[1])
        ticks[int(name)] = sum(int(number) for number in fields[11:15])
    return sum(ticks.get(process, 0) for process in below(pid, parents)) / _TICKS


def below(pid: int, parents: Mapping[int, int]) -> set[int]:
    """
    A process and all that live below it, by each one's parent.

    What was read while processes came and went may hold a circle: a number that was free was
    given to a descendant of one that had it for its parent.
    """
    started: dict[int, list[int]] = {}
    for process, parent in parents.items():
        started.setdefault(parent, []).append(process)
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        process = waiting.pop()
        if process not in found:
            found.add(process)
            waiting += started.get(process, ())
    return found


def children(pid: int) -> list[int]:
    """The processes that a process's first thread started and that live; [] where it is gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]
    return []


def is_crowded(pid: int, most: int) -> bool:
    """
    Whether more than `most` processes live at and below a process, or four times as many threads.

    Takes 10 us for each of them: the whole of /proc, other processes included, is not looked at.
    """
    processes = threads = 0
    waiting = [str(pid)]
    while waiting and processes + len(waiting) <= most and threads <= _THREADS * most:
        folder = f"/proc/{waiting.pop()}/task"
        processes += 1
        with contextlib.suppress(OSError):  # it ended meanwhile
            for thread in os.listdir(folder):
                threads += 1
                with contextlib.suppress(OSError), open(f"{folder}/{thread}/children") as file:
                    waiting += file.read().split()
    return processes + len(waiting) > most or threads > _THREADS * most


def size_over(folder: Path, limit: int) -> bool:
    """Whether the files below a folder take more than `limit` bytes on the disk."""
    total = 0
    waiting = [str(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # it was removed meanwhile
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total > limit


def has_room(folder: Path, least: int) -> bool:
    """Whether the disk below a folder still takes `least` bytes."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize >= least
