"""The simulations and compilations that a warm worker runs for the wrappers of the sandbox.

Standard library only; it runs inside the sandbox (see rlvr_zygote.py).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from rlvr_build import build
from rlvr_record import Hearing, Record

OUT = "/rlvr/out"
RUN = "/rlvr/run"
REQUESTS = f"{RUN}/ask"
REPLIES = 8
_ASK_BYTES = 4096


class Launch:
    """A simulation, or a compilation, that runs for a wrapper; `hearing` is a simulation's."""

    def __init__(
        self, kind: str, asker: int, slot: int, output: int, hearing: Hearing | None
    ) -> None:
        self.kind, self.asker, self.slot = kind, asker, slot
        self.output, self.hearing = output, hearing
        self.is_orphan = False

    def keep(self, code: int) -> None:
        """Say how a simulation ended, and what it reported."""
        if self.hearing is not None:
            note_launch(code, str(self.asker), self.output, self.hearing)

    def close(self) -> None:
        """Close the asker's output and the hearing; a reader of the output then sees its end."""
        os.close(self.output)
        if self.hearing is not None:
            self.hearing.sock.close()


def note_launch(code: int, name: str, output: int, hearing: Hearing) -> None:
    """
    Tell the supervisor how a simulation ended and what it reported.

    Where its output is a file, a copy is kept for people: what failing tests said.
    """
    if stat.S_ISREG(os.fstat(output).st_mode):
        with contextlib.suppress(OSError):
            fd = os.open(f"/proc/self/fd/{output}", os.O_RDONLY)
            with open(fd, "rb") as source, open(f"{OUT}/{name}.log", "wb") as target:
                shutil.copyfileobj(source, target)
    record = Record()
    record.note("launch", {"rc": code, "name": name, **hearing.close()})
    record.close()


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


def read_list(path: str) -> list[str]:
    """The words of a file of /proc that ends each with a zero byte."""
    with open(path, "rb") as file:
        return [word.decode(errors="surrogateescape") for word in file.read().split(b"\0")[:-1]]


def same_place(one: str, other: str) -> bool:
    """Whether two paths lead to the same place."""
    return "/" in one and os.path.realpath(one) == os.path.realpath(other)


def build_and_end(scan: Any, words: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Compile for a wrapper (`scan` is /rlvr/scan.py) and end with the exit status."""
    code = 1
    try:
        code = build(words, environment, scan)
    finally:
        sys.stderr.flush()
        os._exit(code)


def design_of(words: Sequence[str], own_design: str, longest: int) -> tuple[str, str] | None:
    """
    The design of a launch like this process's own and the one argument after it, "" for none.

    Args:
        words: Of the launch, without the program.
        own_design: What stands in the design's place on this process's command line.
        longest: Most bytes of the argument.

    Returns:
        None for any other launch.
    """
    own = read_list("/proc/self/cmdline")[1:]
    place = own.index(own_design)
    if not place < len(words) <= place + 2:
        return None
    same = [a == b or same_place(a, b) for a, b in zip(words[:place], own[:place], strict=True)]
    last = words[place + 1] if len(words) > place + 1 else ""
    return (words[place], last) if all(same) and len(os.fsencode(last)) <= longest else None


class Requests:
    """
    Pipes on which wrappers (`vvp.sh`, `iverilog.sh`) ask a warm worker to act.

    One pipe on which all ask, and a reply pipe for each slot that an asker has taken.
    """

    def __init__(self) -> None:
        self._answered: dict[int, int] = {}
        self._rest = b""
        os.mkfifo(REQUESTS, 0o600)
        self.fd = os.open(REQUESTS, os.O_RDWR | os.O_NONBLOCK)
        self._replies: list[int] = []
        for number in range(REPLIES):
            place = f"{RUN}/reply.{number}"
            os.mkfifo(place, 0o600)
            self._replies.append(os.open(place, os.O_RDWR | os.O_NONBLOCK))

    def read(self) -> Iterator[tuple[str, int, int]]:
        """What was asked: the kind of launch, the asker's process id, its slot."""
        self._free_slots()
        with contextlib.suppress(BlockingIOError):
            self._rest += os.read(self.fd, 1 << 16)
        *lines, self._rest = self._rest.split(b"\n")
        self._rest = self._rest[:_ASK_BYTES]
        for line in lines:
            words = line.decode(errors="replace").split()
            if len(words) == 3 and words[1].isdecimal() and words[2].isdecimal():
                yield words[0], int(words[1]), int(words[2]) % REPLIES

    def answer(self, slot: int, asker: int, text: str) -> None:
        """Tell an asker; it is waiting, or about to, or was killed."""
        with contextlib.suppress(BlockingIOError):  # somebody else filled the pipe
            os.write(self._replies[slot], text.encode() + b"\n")
        self._answered[slot] = asker

    def clear(self) -> None:
        """Throw away what was asked and answered: every asker is dead."""
        self._answered.clear()
        self._rest = b""
        for fd in (self.fd, *self._replies):
            drain(fd)

    def close(self) -> None:
        """In a child, which serves nobody."""
        for fd in (self.fd, *self._replies):
            os.close(fd)

    def _free_slots(self) -> None:
        """Slots are free once their asker is gone; what it did not read is thrown away."""
        for slot, asker in list(self._answered.items()):
            if not is_running(asker):
                del self._answered[slot]
                drain(self._replies[slot])
                with contextlib.suppress(OSError):
                    os.unlink(f"{RUN}/taken.{slot}")
