"""A record as it stands in its file, before anyone looks into it."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

MAX_RECORD = 64 * 2**20
"""Bytes of one record, at most; a longer one is reported and passed over."""


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
