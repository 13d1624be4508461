"""Takes down what the sandbox's own programs say (see inside/rlvr_record.py), on this side."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import sys
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
_TURNS = 4
"""Turns of the loop in which asyncio makes a connection of one that it has accepted."""
# Python 3.13 looks at the path, to remove it: one through a descriptor that is closed by now
_KEEP_PATH: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
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
        self._server: asyncio.Server | None = None
        self._record = Record()
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._is_closed = False

    async def begin(self) -> Record:
        """A new record: what is said from now on stands in it."""
        if self._server is None:
            self._server = await asyncio.start_unix_server(
                self._serve, sock=self._listener, **_KEEP_PATH
            )
        self._record = Record()
        return self._record

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Own a connection from the moment it is made: a task may be cancelled before it begins."""
        if self._is_closed:
            writer.close()
        elif len(self._connections) >= _MOST_SPEAKERS:
            self._record.is_sound = False
            writer.close()
        else:
            task = asyncio.ensure_future(_take_down(reader, writer, self._record))
            self._connections[task] = writer
            task.add_done_callback(self._hang_up)

    def _hang_up(self, task: asyncio.Task[None]) -> None:
        self._connections.pop(task).close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            task.result()

    async def close(self) -> None:
        """Listen no more, and hang up all connections, those that are being accepted too."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._server is not None:
                # Closed while asyncio makes a connection, a server leaves its socket open.
                asyncio.get_running_loop().remove_reader(self._listener)
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
        finally:
            if self._server is not None:
                self._server.close()
            self._listener.close()
            for task in self._connections:
                task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await asyncio.sleep(0)  # a transport closes its socket in the turn after


async def _take_down(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: Record
) -> None:
    nonce, number, speaker = os.urandom(_NONCE), 0, id(reader)
    writer.write(nonce)
    is_over = False
    while True:
        head = await _read(reader, 4)
        if not head:
            return
        size = struct.unpack("!I", head)[0] if len(head) == 4 else _MOST_BYTES + 1
        record.room -= size
        text = await _read(reader, size) if size <= _MOST_BYTES and record.room >= 0 else b""
        note = _note(text, nonce, number) if len(text) == size else None
        if note is None or is_over or len(record.notes) >= _MOST_NOTES:
            record.is_sound = False
            return
        kind, body = note
        is_over = kind == "end"
        record.notes.append(Note(speaker, kind, body))
        record.launches += kind == "launch"
        number += 1
        writer.write(struct.pack("!I", record.launches))


async def _read(reader: asyncio.StreamReader, size: int) -> bytes:
    """So many bytes, fewer at the end."""
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as error:
        return error.partial


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
