"""Lines of a file, never longer than a bound: what is longer is passed over, not held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from attrs import frozen

_CHUNK = 1 << 20


@frozen
class Line:
    """A line with its number (1-based); `data` is None where it is longer than the bound."""

    number: int
    data: bytes | None
    size: int


def lines_of(file: IO[bytes], limit: int) -> Iterator[Line]:
    """All lines, without the newline."""
    number = 0
    while data := file.readline(limit + 1):
        number += 1
        if len(data) > limit and not data.endswith(b"\n"):
            yield Line(number, None, len(data) + _skip(file))
        else:
            yield Line(number, data.removesuffix(b"\n"), len(data))


def _skip(file: IO[bytes]) -> int:
    """Read on to the end of the line, a piece at a time; gives the bytes that were passed."""
    passed = 0
    while piece := file.readline(_CHUNK):
        passed += len(piece)
        if piece.endswith(b"\n"):
            break
    return passed


def too_long(size: int, limit: int) -> str:
    """The reason for a record beyond the bound."""
    return f"it has {size / 2**20:.0f} MiB, more than the {limit / 2**20:.0f} MiB a record may have"


def not_utf8(data: bytes, error: UnicodeDecodeError) -> str:
    """The reason for bytes that are no text."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "it is UTF-16: convert it to UTF-8"
    found = data[error.start : error.start + 1].hex()
    return f"it is not UTF-8: byte 0x{found} at offset {error.start} of the record"
