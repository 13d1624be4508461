"""What a sandbox has used so far: processor time, processes, memory, size of its folder."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_THREADS = 4
"""Threads to a process, on average: numerical libraries start one for each core of the machine."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


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


def activity(pid: int) -> tuple[float, bool]:
    """
    What a process and all that live below it have computed, in seconds, and whether they may go on.

    The second is True where one of them runs, or waits for a processor or a disk; False where all
    wait for something else. Where nobody can tell it is (0, True). Ended children are counted once
    their parent has waited for them.
    """
    ticks, is_busy = 0, not os.path.exists(f"/proc/{pid}/stat")
    waiting = [pid]
    while waiting:
        process = waiting.pop()
        with contextlib.suppress(OSError), open(f"/proc/{process}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
            ticks += sum(int(number) for number in fields[11:15])
            is_busy |= fields[0] in "RD"
            for thread in os.listdir(f"/proc/{process}/task"):  # each has children of its own
                with (
                    contextlib.suppress(OSError),
                    open(f"/proc/{process}/task/{thread}/children") as started,
                ):
                    waiting += [int(word) for word in started.read().split()]
    return ticks / _TICKS, is_busy


def memory_over(pid: int, limit: int) -> bool:
    """
    Whether a process and all that live below it hold more than `limit` bytes of memory together.

    Files that they have mapped do not count, and what several share counts once.
    """
    held: dict[int, int] = {}
    waiting = [pid]
    while waiting:
        process = waiting.pop()
        with contextlib.suppress(OSError):  # it ended meanwhile
            with open(f"/proc/{process}/statm") as file:
                _, resident, shared, *_ = (int(word) for word in file.read().split())
            held[process] = max(0, resident - shared) * _PAGE
            for thread in os.listdir(f"/proc/{process}/task"):
                with (
                    contextlib.suppress(OSError),
                    open(f"/proc/{process}/task/{thread}/children") as started,
                ):
                    waiting += [int(word) for word in started.read().split()]
    if sum(held.values()) <= limit:
        return False
    return sum(min(own, _proportional(process, own)) for process, own in held.items()) > limit


def sockets_over(pid: int, limit: int) -> bool:
    """
    Whether the network below a process, where it is not this machine's, has more sockets.

    What waits in a socket is the kernel's memory, some megabytes each, and no process's. Sockets
    that only lie in another socket's queue count too.
    """
    waiting = [pid]
    own = os.stat("/proc/self/net/sockstat").st_ino
    while waiting:
        process = waiting.pop()
        with (
            contextlib.suppress(OSError),  # it ended meanwhile
            open(f"/proc/{process}/net/sockstat") as file,
        ):
            if os.fstat(file.fileno()).st_ino != own:
                return int(file.readline().split()[2]) > limit
        waiting += children(process)
    return False


def _proportional(pid: int, otherwise: int) -> int:
    """Bytes of memory that a process holds, its share of what it has in common with others."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file:
            if line.startswith("Pss_Anon:"):
                return int(line.split()[1]) * 1024
    return otherwise


def size_over(folder: Path, limit: int) -> bool:
    """
    Whether what lies below a folder takes more than `limit` bytes on the disk.

    Each entry counts for a page at least, so that many empty files count. A folder that is closed
    is opened; one that cannot be looked into, or whose path is too long, counts as over.
    """
    total = 0
    waiting = [str(folder)]
    while waiting and total <= limit:
        place = waiting.pop()
        try:
            names = _names(place)
        except (FileNotFoundError, NotADirectoryError):
            continue  # it was removed meanwhile
        except OSError:
            return True
        for name in names:
            try:
                facts = os.lstat(f"{place}/{name}")
            except FileNotFoundError:
                continue
            except OSError:
                return True
            total += max(facts.st_blocks * 512, _PAGE)
            if stat.S_ISDIR(facts.st_mode):
                waiting.append(f"{place}/{name}")
    return total > limit


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except PermissionError:
        os.chmod(folder, 0o700, follow_symlinks=False)
        return os.listdir(folder)


def unlinked_over(pid: int, folder: Path, limit: int) -> bool:
    """
    Whether files without a name take more than `limit` bytes of a folder's disk.

    Those that a process, or one below it, has open: they are in no folder, and go with it.
    """
    device = os.stat(folder).st_dev
    sizes: dict[int, int] = {}
    waiting = [str(pid)]
    while waiting:
        place = f"/proc/{waiting.pop()}"
        with contextlib.suppress(OSError):  # it ended meanwhile
            for thread in os.listdir(f"{place}/task"):
                with open(f"{place}/task/{thread}/children") as file:
                    waiting += file.read().split()
        with contextlib.suppress(OSError):
            for name in os.listdir(f"{place}/fd"):
                with contextlib.suppress(OSError):
                    facts = os.stat(f"{place}/fd/{name}")
                    if facts.st_nlink == 0 and facts.st_dev == device:
                        sizes[facts.st_ino] = facts.st_blocks * 512
    return sum(sizes.values()) > limit


def has_room(folder: Path, least: int) -> bool:
    """Whether the disk below a folder still takes `least` bytes."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize >= least
