"""The pipes on which the wrappers of a harness (`vvp.sh`, `iverilog.sh`) ask a warm worker to act.

Standard library only; it runs inside the sandbox (see rlvr_zygote.py).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from rlvr_launch import drain, is_running

RUN = "/rlvr/run"
REQUESTS = f"{RUN}/ask"
REPLIES = 8
REPLY_PLACES = tuple(f"{RUN}/reply.{number}" for number in range(REPLIES))
_ASK_BYTES = 4096


class Requests:
    """One pipe on which all ask, and a reply pipe for each slot that an asker has taken."""

    def __init__(self) -> None:
        self._answered: dict[int, int] = {}
        self._rest = b""
        os.mkfifo(REQUESTS, 0o600)
        self.fd = os.open(REQUESTS, os.O_RDWR | os.O_NONBLOCK)
        self._replies: list[int] = []
        for place in REPLY_PLACES:
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
