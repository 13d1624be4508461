"""How the sandbox's own programs say what happened: over sockets, which no path leads to.

A design can open any file, its simulator's descriptors under /proc too, and a pipe or a plain file
behind a descriptor can be opened again; a socket cannot. Two kinds are used:

- `Record` connects to the supervisor, which listens outside of the sandbox and answers each note;
- a simulation reports its results to the program that started it, over one half of a pair of
  sockets that was made before the design was read (`pair`, `report`, `Hearing`).

Both sides of a connection know a number that the listener drew (`nonce`), notes are numbered, and
the last one says that nothing was cut off. Standard library only; it runs inside the sandbox.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import struct
from typing import Any

PLACE = "/rlvr/control/record"
REPORT_FD = 201
"""The descriptor over which a simulation reports."""
_NONCE = 16
_MOST = 16_000_000
_numbers = {"sent": 0}
_known: list[bytes] = []


def pack(nonce: bytes, number: int, kind: str, body: Any) -> bytes:
    """A note as bytes, its length first."""
    text = json.dumps([nonce.hex(), number, kind, body]).encode()
    return struct.pack("!I", len(text)) + text


def read_exactly(sock: socket.socket, size: int) -> bytes:
    """So many bytes; fewer where the other side hung up."""
    found = b""
    while len(found) < size:
        chunk = sock.recv(size - len(found))
        if not chunk:
            break
        found += chunk
    return found


class Record:
    """A connection to the supervisor; each note waits until it was taken down."""

    def __init__(self) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.connect(PLACE)
        self._nonce = read_exactly(self._sock, _NONCE)
        self._number = 0

    def note(self, kind: str, body: Any = None) -> int:
        """Say what happened; gives how many simulations have ended so far."""
        self._sock.sendall(pack(self._nonce, self._number, kind, body))
        self._number += 1
        reply = read_exactly(self._sock, 4)
        return int(struct.unpack("!I", reply)[0]) if len(reply) == 4 else 0

    def close(self) -> None:
        """Hang up."""
        self._sock.close()


def pair() -> tuple[Hearing, int]:
    """What hears a simulation that is to be started, and the descriptor that it reports over."""
    ours, theirs = socket.socketpair()
    hearing = Hearing(ours)
    return hearing, theirs.detach()


class Hearing:
    """The starter's half: takes down what one simulation reports."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._nonce = os.urandom(_NONCE)
        sock.sendall(self._nonce)
        sock.setblocking(False)
        self._data = bytearray()
        self.is_open = True

    def hear(self) -> None:
        """Take what has come; `is_open` tells whether more may come."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while len(self._data) <= _MOST:
                chunk = self.sock.recv(1 << 16)
                if not chunk:
                    break
                self._data += chunk
            self.is_open = False

    def close(self) -> dict[str, Any]:
        """What was reported: `results`, `summary`, and `end` where nothing is missing."""
        self.hear()
        self.sock.close()
        found: dict[str, Any] = {}
        data, number = bytes(self._data), 0
        while len(data) >= 4:
            (size,) = struct.unpack("!I", data[:4])
            text, data = data[4 : 4 + size], data[4 + size :]
            try:
                nonce, count, kind, body = json.loads(text)
            except ValueError:
                return {}
            if nonce != self._nonce.hex() or count != number or "end" in found:
                return {}
            found[kind] = body
            number += 1
        return found if found.get("end") == number - 1 and not data else {}


def report(kind: str, body: Any) -> None:
    """Tell the starter of this simulation; does nothing in a process that none started so."""
    try:
        if not stat.S_ISSOCK(os.fstat(REPORT_FD).st_mode):
            return
    except OSError:
        return
    sock = socket.socket(fileno=REPORT_FD)
    try:
        if not _known:
            _known.append(read_exactly(sock, _NONCE))
        sock.sendall(pack(_known[0], _numbers["sent"], kind, body))
        _numbers["sent"] += 1
    finally:
        sock.detach()


def end_report() -> None:
    """Say that all was reported."""
    report("end", _numbers["sent"])
