"""Empties folders whatever was done to them, and says whether they are as they were at first.

Used by this process, and copied into the sandbox, where a warm worker cleans up behind each
command: standard library only, and no import of ours.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterable

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FIXED_NS = (0, 0)
"""Times that a folder is given when it is clean; its own would tell of what was in it."""

Facts = tuple[int, ...]


def clear(folder: str | os.PathLike[str], keep: Collection[str] = ()) -> None:
    """
    Take away all that is in a folder but the names in `keep`, whatever it is; follows no link.

    Closed folders are opened. A folder's own folders move up beside it before it goes, so that no
    path becomes long and nothing recurses, however deep they lie.

    Raises:
        OSError: Something cannot be taken away.
    """
    with contextlib.suppress(OSError):
        os.chmod(folder, os.lstat(folder).st_mode & 0o7777 | 0o700)
    top = os.open(folder, _OPEN)
    try:
        while names := [name for name in os.listdir(top) if name not in keep]:
            for name in names:
                _take_away(top, name)
    finally:
        os.close(top)


def _take_away(top: int, name: str) -> None:
    if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
        os.unlink(name, dir_fd=top)
        return
    with contextlib.suppress(PermissionError):  # another's may go all the same
        os.chmod(name, 0o700, dir_fd=top)
    folder = os.open(name, _OPEN, dir_fd=top)
    try:
        for child in os.listdir(folder):
            if stat.S_ISDIR(os.lstat(child, dir_fd=folder).st_mode):
                try:
                    os.chmod(child, 0o700, dir_fd=folder)  # to move it, its ".." is written
                    other = f"rlvr-{os.urandom(8).hex()}"
                    os.rename(child, other, src_dir_fd=folder, dst_dir_fd=top)
                except PermissionError:  # another's
                    os.rmdir(child, dir_fd=folder)
            else:
                os.unlink(child, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)


class FolderSnapshot:
    """
    Folders and files as they are now, to be made so again.

    What lies in them now stays; all else is taken away by `renew`.
    """

    def __init__(self, places: Iterable[str]) -> None:
        self._places = [place for place in places if os.path.lexists(place)]
        self._mounted: set[str] = set()
        self._first = self._look()

    def renew(self) -> bool:
        """Make everything as it was at first; False where something is not so afterwards."""
        for path, (mode, *_) in self._first.items():
            try:
                if path in self._mounted:
                    continue
                if stat.S_ISDIR(mode):
                    self._renew_folder(path, mode)
                elif stat.S_IMODE(os.lstat(path).st_mode) != stat.S_IMODE(mode):
                    os.chmod(path, stat.S_IMODE(mode), follow_symlinks=False)
            except (OSError, NotImplementedError):
                return False
        return self._look() == self._first

    def _renew_folder(self, path: str, mode: int) -> None:
        if path not in self._places and not os.path.lexists(path):
            os.mkdir(path)
        clear(path, keep=self._children(path))
        os.chmod(path, stat.S_IMODE(mode))

    def _children(self, folder: str) -> set[str]:
        """What was in a folder at first and is still of its kind."""
        kept = set()
        for path, (mode, *_) in self._first.items():
            head, _, name = path.rpartition("/")
            if head != folder or not os.path.lexists(path):
                continue
            if stat.S_IFMT(os.lstat(path).st_mode) == stat.S_IFMT(mode):
                kept.add(name)
        return kept

    def _look(self) -> dict[str, Facts]:
        """
        Each path with its mode, owner and kind; folders before what is in them.

        Of files also which file it is, of folders their size, which on some file systems tells how
        much was in them. Folders are given fixed times. Another file system that is mounted in a
        folder is not looked into.
        """
        found: dict[str, Facts] = {}
        waiting = [(place, os.lstat(place).st_dev) for place in self._places]
        while waiting:
            path, device = waiting.pop()
            facts = os.lstat(path)
            if facts.st_dev != device:
                self._mounted.add(path)
                found[path] = (facts.st_mode,)
                continue
            is_folder = stat.S_ISDIR(facts.st_mode)
            if is_folder:
                waiting += [(f"{path}/{name}", device) for name in os.listdir(path)]
                os.utime(path, ns=_FIXED_NS)
            more = (facts.st_size,) if is_folder else (facts.st_ino, facts.st_rdev)
            marks = len(os.listxattr(path, follow_symlinks=False))
            found[path] = (facts.st_mode, facts.st_uid, facts.st_gid, marks, *more)
        return found


def writable_places(mounts: str, leave: Collection[str]) -> list[str]:
    """
    Where a process may write: mount points of `/proc/self/mountinfo` that are not read-only.

    Left out are those in `leave`, and what the kernel itself shows (/proc, terminals).
    """
    found = []
    for line in mounts.splitlines():
        words, _, source = line.partition(" - ")
        place = words.split()[4].encode().decode("unicode_escape")
        if place in leave or source.split()[0] in ("proc", "devpts", "sysfs", "cgroup", "cgroup2"):
            continue
        with contextlib.suppress(OSError):
            if not os.statvfs(place).f_flag & os.ST_RDONLY:
                found.append(place)
    return list(dict.fromkeys(found))
