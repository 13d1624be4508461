"""Takes down what the sandbox's own programs say (see inside/rlvr_record.py), on this side."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

PLACE = "record"
_NONCE = 16
_MOST_BYTES = 16_000_000
_MOST_TOGETHER = 64_000_000
_MOST_NOTES = 100_000
_MOST_SPEAKERS = 200
_PIECE = 1 << 18
_PAUSE_S = 0.1
_SHAPES: Mapping[str, Mapping[str, type] | type] = {
    "build": {"how": str, "refused": list},
    "launch": {"rc": int, "name": str},
    "item": {"item": str, "when": str, "outcome": str},
    "tool": {"tool": str, "argv": list, "cwd": str, "scripts": dict},
    "collected": list,
    "netlist": str,
    **dict.fromkeys(("unbuilt", "count", "end"), object),
}
"""What may be said, and what each note must hold."""


@frozen
class Note:
    """Something that a program of the sandbox said; `speaker` tells connections apart."""

    speaker: int
    kind: str
    body: Any = field(repr=False)


class Record:
    """
    The notes of one command, in the order in which they were taken down.

    `is_sound` is False once a connection said something that does not follow from what it said
    before: a wrong number or nonce, a note cut off or of another shape, a word after its last, or
    more than anybody has to say.
    """

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.is_sound = True
        self.launches = 0
        self.speakers = 0
        self.room = _MOST_TOGETHER

    def of_kind(self, kind: str) -> list[Any]:
        """The bodies of the notes of a kind."""
        return [note.body for note in self.notes if note.kind == kind]

    @property
    def is_whole(self) -> bool:
        """Whether each speaker of several notes said its last word."""
        several = {n.speaker for n in self.notes if n.kind in ("collected", "item")}
        return self.is_sound and several <= {n.speaker for n in self.notes if n.kind == "end"}


class Recorder:
    """
    Listens in a folder that the sandbox shows to its programs, from before a command runs.

    A note counts for the command during which its connection was made. Each is answered by how
    many simulations have ended; the answer also confirms that the note was taken down.
    """

    def __init__(self, folder: Path) -> None:
        self._listener = listen(folder, PLACE)
        self._record = Record()
        self._connections: dict[asyncio.Task[None], socket.socket] = {}

    def begin(self) -> Record:
        """A new record: what is said from now on, in the running loop, stands in it."""
        self._listen()
        self._record = Record()
        return self._record

    def _listen(self) -> None:
        if self._listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        """Own a connection from the moment it is made: a task may be cancelled before it begins."""
        try:
            speaker, _ = self._listener.accept()
        except OSError:  # no descriptor is free
            asyncio.get_running_loop().remove_reader(self._listener)
            asyncio.get_running_loop().call_later(_PAUSE_S, self._listen)
            return
        if len(self._connections) >= _MOST_SPEAKERS:
            self._record.is_sound = False
            speaker.close()
            return
        speaker.setblocking(False)
        task = asyncio.ensure_future(_take_down(speaker, self._record))
        self._connections[task] = speaker
        task.add_done_callback(self._hang_up)

    def _hang_up(self, task: asyncio.Task[None]) -> None:
        self._connections.pop(task).close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            task.result()

    async def close(self) -> None:
        """Listen no more, and hang up all connections."""
        if self._listener.fileno() < 0:
            return
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


async def _take_down(speaker: socket.socket, record: Record) -> None:
    nonce, number, is_over = os.urandom(_NONCE), 0, False
    record.speakers += 1
    own = record.speakers
    await _answer(speaker, nonce)
    while True:
        head = await _read(speaker, 4)
        if not head:
            return
        size = struct.unpack("!I", head)[0] if len(head) == 4 else _MOST_BYTES + 1
        record.room -= size
        text = await _read(speaker, size) if size <= _MOST_BYTES and record.room >= 0 else b""
        note = _note(text, nonce, number) if len(text) == size else None
        if note is None or is_over or len(record.notes) >= _MOST_NOTES:
            record.is_sound = False
            return
        kind, body = note
        is_over = kind == "end"
        record.notes.append(Note(own, kind, body))
        record.launches += kind == "launch"
        number += 1
        await _answer(speaker, struct.pack("!I", record.launches))
        await asyncio.sleep(0)  # a socket that is always ready does not keep the loop


async def _answer(speaker: socket.socket, text: bytes) -> None:
    """What it said counts, also where it did not wait for the answer."""
    with contextlib.suppress(OSError):
        await asyncio.get_running_loop().sock_sendall(speaker, text)


async def _read(speaker: socket.socket, size: int) -> bytes:
    """So many bytes, fewer at the end."""
    receive = asyncio.get_running_loop().sock_recv
    found = bytearray()
    while len(found) < size and (some := await receive(speaker, min(size - len(found), _PIECE))):
        found += some
    return bytes(found)


def _note(text: bytes, nonce: bytes, number: int) -> tuple[str, Any] | None:
    """Kind and body of the note that must come now, None for anything else."""
    with contextlib.suppress(LookupError, ValueError, TypeError, RecursionError):
        said, count, kind, body = json.loads(text)
        if (said, count) == (nonce.hex(), number) and _is_shaped(kind, body):
            return kind, body
    return None


def _is_shaped(kind: str, body: Any) -> bool:
    """Whether a note of this kind holds what the sandbox's own programs say."""
    shape = _SHAPES[kind]
    fields, body = (shape, body) if isinstance(shape, Mapping) else ({"": shape}, {"": body})
    return isinstance(body, dict) and all(
        isinstance(body.get(name), of) and all(isinstance(word, str) for word in _words(body[name]))
        for name, of in fields.items()
        if of is not object
    )


def _words(value: Any) -> Any:
    return value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()


def listen(folder: Path, name: str) -> socket.socket:
    """A socket in a folder, whose path may be longer than a socket's name can be."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{handle}/{name}")
    finally:
        os.close(handle)
    listener.listen(64)
    listener.setblocking(False)
    return listener
