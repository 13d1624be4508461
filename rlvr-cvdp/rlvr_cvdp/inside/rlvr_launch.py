"""The simulations and scans that a warm worker runs for the wrappers of the sandbox.

Standard library only; it runs inside the sandbox (see rlvr_zygote.py).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

OUT = "/rlvr/out"


class Launch:
    """A simulation, or a scan, that runs for a wrapper."""

    def __init__(
        self,
        kind: str,
        asker: int,
        slot: int,
        folder: int,
        output: int,
        environment: Mapping[str, str],
    ) -> None:
        self.kind, self.asker, self.slot = kind, asker, slot
        self.folder, self.output = folder, output
        self.results = environment.get("COCOTB_RESULTS_FILE") or "results.xml"
        self.is_orphan = False

    def keep(self, code: int) -> None:
        """Keep what a simulation said, as the end of `vvp.sh` does."""
        if self.kind == "vvp":
            with contextlib.suppress(OSError):
                fd = os.open(self.results, os.O_RDONLY | os.O_NONBLOCK, dir_fd=self.folder)
                _copy(fd, f"{OUT}/{self.asker}.xml")
            if stat.S_ISREG(os.fstat(self.output).st_mode):
                fd = os.open(f"/proc/self/fd/{self.output}", os.O_RDONLY)
                _copy(fd, f"{OUT}/{self.asker}.log")
            with open(f"{OUT}/launches", "a") as file:
                file.write(f"{code} {self.asker}\n")

    def close(self) -> None:
        """Let go of what the asker had open; its output ends for whoever reads it."""
        os.close(self.folder)
        os.close(self.output)


def is_running(pid: int) -> bool:
    """Whether a process is there, and not only its exit status."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(") ")[2][:1] not in ("Z", "X", "")
    except OSError:
        return False


def drain(fd: int) -> None:
    """Throw away what waits in a pipe."""
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 1 << 16):
            pass


def _copy(fd: int, place: str) -> None:
    with open(fd, "rb") as source, open(place, "wb") as target:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            shutil.copyfileobj(source, target)


def read_list(path: str) -> list[str]:
    """The words of a file of /proc that ends each with a zero byte."""
    with open(path, "rb") as file:
        return [word.decode(errors="surrogateescape") for word in file.read().split(b"\0")[:-1]]


def same_place(one: str, other: str) -> bool:
    """Whether two paths lead to the same place."""
    return "/" in one and os.path.realpath(one) == os.path.realpath(other)


def empty(folder: str, keep: Collection[str]) -> None:
    """Take away all that is in a folder but `keep`."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.path in keep:
                continue
            if entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    os.chmod(entry.path, 0o700)
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def scan(main: Any, words: Sequence[str]) -> NoReturn:
    """Look through a compiled simulation (`main` of /rlvr/scan.py) and end with the verdict."""
    code = 1
    try:
        code = main(list(words))
    finally:
        sys.stderr.flush()
        os._exit(code)
