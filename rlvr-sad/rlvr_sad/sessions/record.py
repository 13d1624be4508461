"""A record as it stands in its file, and the lines of a file: neither is longer than a bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Literal

from attrs import frozen

MAX_RECORD = 64 * 2**20
"""Bytes of one record, at most; a longer one is reported and passed over."""
BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 20


@frozen
class Raw:
    """
    The bytes of one record.

    Attributes:
        id: Its key, or its position in the file.
        line: Line at which it begins (1-based).
        kind: How the bytes are to be read.
        data: UTF-8.
    """

    id: str
    line: int
    kind: Literal["json", "text"]
    data: bytes


@frozen(kw_only=True)
class Rejected:
    """A record that was not read: where it is, and why."""

    source: str
    line: int
    id: str
    reason: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line}: record {self.id}: {self.reason}"


class BrokenFileError(ValueError):
    """A file cannot be read on; `line` is where."""

    def __init__(self, reason: str, line: int = 1) -> None:
        super().__init__(reason)
        self.line = line


@frozen
class Line:
    """A line with its number (1-based); `data` is None where it is longer than the bound."""

    number: int
    data: bytes | None
    size: int


def lines_of(file: IO[bytes], limit: int) -> Iterator[Line]:
    """All lines, without the newline; one that is longer than the bound is never held."""
    number = 0
    while data := file.readline(limit + 1):
        number += 1
        if len(data) <= limit or data.endswith(b"\n"):
            yield Line(number, data.removesuffix(b"\n"), len(data))
            continue
        size = len(data)
        while not data.endswith(b"\n") and (data := file.readline(_CHUNK)):
            size += len(data)
        yield Line(number, None, size)


def too_long(size: int, limit: int) -> str:
    """The reason for a record beyond the bound."""
    return f"it has {size / 2**20:.0f} MiB, more than the {limit / 2**20:.0f} MiB a record may have"


def not_utf8(data: bytes, error: UnicodeDecodeError) -> str:
    """The reason for bytes that are no text."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "it is UTF-16: convert it to UTF-8"
    found = data[error.start : error.start + 1].hex()
    return f"it is not UTF-8: byte 0x{found} at offset {error.start} of the record"
