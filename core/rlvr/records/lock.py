"""A lock on a folder that ends with the process that holds it (`flock` on a file in it).

The text of the lock file says who holds it. It decides nothing on the machine where it was
written, so a process id that is used again blocks nobody.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

from rlvr.log import get

log = get(__name__)

LOCK = "owner.lock"
LONGEST_RECORD = 4096
"""Bytes that are read of a lock file: our records are shorter."""
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL})
"""Errors of `flock` on a file system without locks."""
_NOW = fcntl.LOCK_EX | fcntl.LOCK_NB

_held: set[int] = set()
"""Descriptors of all locks that this process holds."""


def _close_in_child() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


# A forked child shares its parent's lock: it would hold the folder after the parent is dead.
# Programs that are started instead never get the descriptor (close-on-exec).
os.register_at_fork(after_in_child=_close_in_child)


def record_in(text: bytes) -> dict[str, Any] | None:
    """The owner's record in a lock file's text; None if it is empty, {} if it is none of ours."""
    if not text.strip():
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def is_free(directory: Path) -> bool | None:
    """
    Whether no process holds the lock of a folder; None where the file system does not say.

    Writes nothing, and keeps a process that takes the lock at this very moment waiting for less
    than a millisecond.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(directory / LOCK, flags)
    except OSError as error:
        return True if error.errno == errno.ENOENT else None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return True


class Lock:
    """
    The lock file of a folder, opened; `is_taken` takes the lock.

    The directory itself is locked too, in case somebody removes the file. On a file system
    without locks, a file in this machine's temporary folder is locked instead (`is_local`).
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._all: list[int] = []
        self.is_local = False
        # A link, a pipe or a device in the lock's place is never followed, waited for or written.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        self._file = self._open(directory / LOCK, flags)
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            self.drop()
            raise OSError(errno.EINVAL, "no regular file; remove it", str(directory / LOCK))

    def _open(self, path: Path, flags: int) -> int:
        try:
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EMLINK):
                raise
            raise OSError(error.errno, "a link; remove it", str(path)) from error
        _held.add(descriptor)
        self._all.append(descriptor)
        return descriptor

    def is_taken(self) -> bool:
        """Take the lock if it is free; False where another process has it."""
        try:
            fcntl.flock(self._file, _NOW)
            folder = self._open(self._directory, os.O_RDONLY)
            try:
                fcntl.flock(folder, _NOW)
            except BlockingIOError:
                raise
            except OSError as error:
                log.debug("folder_not_locked", error=str(error))  # NFS: the file's lock is enough
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            return self._is_taken_here()
        return self._is_current()

    def _is_taken_here(self) -> bool:
        self.is_local = True
        folder = Path(tempfile.gettempdir()) / f"rlvr-locks-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        name = hashlib.sha256(os.fsencode(self._directory.resolve())).hexdigest()
        try:
            fcntl.flock(self._open(folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW), _NOW)
        except BlockingIOError:
            return False
        return self._is_current()

    def _is_current(self) -> bool:
        """Whether the locked file is still in its place: its last owner may have removed it."""
        try:
            there = os.stat(self._directory / LOCK, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self._file))

    def read(self) -> dict[str, Any] | None:
        """The owner's record; None if the file is empty, {} if the text is no record of ours."""
        return record_in(os.pread(self._file, LONGEST_RECORD, 0))

    def write(self, record: dict[str, Any]) -> None:
        """Write the owner's record."""
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, (json.dumps(record) + "\n").encode(), 0)

    def release(self) -> None:
        """Empty the lock file and unlock; remove file and folder if no run has begun in it."""
        if self._file not in _held:  # in a forked child, whose parent still owns it
            return
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            if not (self._directory / "run.json").exists() and self._is_current():
                (self._directory / LOCK).unlink()
                self._directory.rmdir()
        self.drop()

    def drop(self) -> None:
        """Close all descriptors, which releases the locks."""
        for descriptor in self._all:
            if descriptor in _held:
                _held.discard(descriptor)
                os.close(descriptor)
