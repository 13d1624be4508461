"""What a sandbox has used so far: processor time, processes, memory, size of its folder."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_THREADS = 4
"""Threads to a process, on average: numerical libraries start one for each core of the machine."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


def children(pid: int, thread: int | str = 0) -> list[int]:
    """Living processes that a thread of a process started, by default its first; [] if gone."""
    place = f"/proc/{pid}/task/{thread or pid}/children"
    with contextlib.suppress(OSError), open(place) as file:
        return [int(word) for word in file.read().split()]
    return []


def _tree(pid: int) -> Iterator[tuple[int, int]]:
    """
    A process and all that live below it, each with its number of threads; 0 where it has ended.

    Takes 10 us for each of them: the whole of /proc, other processes included, is not looked at.
    """
    waiting = [pid]
    while waiting:
        process = waiting.pop()
        threads: list[str] = []
        with contextlib.suppress(OSError):
            threads = os.listdir(f"/proc/{process}/task")
        for thread in threads:
            waiting += children(process, thread)
        yield process, len(threads)


def is_crowded(pid: int, most: int) -> bool:
    """Whether more than `most` processes live at and below one, or four times as many threads."""
    threads = 0
    for number, (_, more) in enumerate(_tree(pid), start=1):
        threads += more
        if number > most or threads > _THREADS * most:
            return True
    return False


def activity(pid: int) -> tuple[float, bool]:
    """
    What a process and all that live below it have computed, in seconds, and whether they may go on.

    The second is True where one of them runs, or waits for a processor or a disk; False where all
    wait for something else. Where that cannot be read: (0, True). Ended children are counted once
    their parent has waited for them.
    """
    ticks, is_busy = 0, not os.path.exists(f"/proc/{pid}/stat")
    for process, _ in _tree(pid):
        with contextlib.suppress(OSError), open(f"/proc/{process}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
            ticks += sum(int(number) for number in fields[11:15])
            is_busy |= fields[0] in "RD"
    return ticks / _TICKS, is_busy


def memory_over(pid: int, limit: int) -> bool:
    """
    Whether a process and all that live below it hold more than `limit` bytes of memory together.

    Files that they have mapped do not count, and what several share counts once.
    """
    held: dict[int, int] = {}
    for process, _ in _tree(pid):
        with contextlib.suppress(OSError), open(f"/proc/{process}/statm") as file:
            _, resident, shared, *_ = (int(word) for word in file.read().split())
            held[process] = max(0, resident - shared) * _PAGE
    if sum(held.values()) <= limit:
        return False
    return sum(min(own, _proportional(process, own)) for process, own in held.items()) > limit


def _proportional(pid: int, otherwise: int) -> int:
    """Bytes of memory that a process holds, with its share of what it shares with others."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file:
            if line.startswith("Pss_Anon:"):
                return int(line.split()[1]) * 1024
    return otherwise


def sockets_over(pid: int, limit: int) -> bool:
    """
    Whether the network below a process, where it is not this machine's, has more sockets.

    What waits in a socket is the kernel's memory, some megabytes each, and no process's. Sockets
    that only lie in another socket's queue count too.
    """
    own = os.stat("/proc/self/net/sockstat").st_ino
    for process, _ in _tree(pid):
        with contextlib.suppress(OSError), open(f"/proc/{process}/net/sockstat") as file:
            if os.fstat(file.fileno()).st_ino != own:
                return int(file.readline().split()[2]) > limit
    return False


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
        except (OSError, NotImplementedError):  # an old glibc cannot open it without following
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
    for process, _ in _tree(pid):
        with contextlib.suppress(OSError):  # it ended meanwhile
            for name in os.listdir(f"/proc/{process}/fd"):
                with contextlib.suppress(OSError):
                    facts = os.stat(f"/proc/{process}/fd/{name}")
                    if facts.st_nlink == 0 and facts.st_dev == device:
                        sizes[facts.st_ino] = facts.st_blocks * 512
    return sum(sizes.values()) > limit


def has_room(folder: Path, least: int) -> bool:
    """Whether the disk below a folder still takes `least` bytes."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize >= least
