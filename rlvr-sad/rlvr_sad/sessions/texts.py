"""A text file as records: between lines of `=====`, and the headings of Reflexion's logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO

from attrs import define, field

from rlvr_sad.sessions.record import BOM, Line, Raw, Rejected, lines_of, too_long

_RULE = re.compile(rb"={5,}")
_AGENTS = re.compile(rb"-{3,}\s*BEGIN .*AGENTS\s*-{3,}")
_HASHES = re.compile(rb"#{20,}")


@define
class _Open:
    """The record that is being read."""

    begins: int
    held: list[bytes] = field(factory=list)
    size: int = 0
    is_long: bool = False

    def add(self, line: Line, limit: int) -> None:
        self.size += line.size
        if line.data is None or self.size > limit:
            self.is_long = True
            self.held = []
        elif not self.is_long:
            self.held.append(line.data)

    @property
    def is_blank(self) -> bool:
        return not self.is_long and not any(line.strip() for line in self.held)


def texts_of(file: IO[bytes], source: str, limit: int) -> Iterator[Raw | Rejected]:
    """
    The texts of a file.

    A line of `=====` parts two where a blank line stands before it (else it underlines a title); so
    do Reflexion's `----- BEGIN ... AGENTS -----`, and its summary of a trial between two lines of
    `#####`.
    """
    index = 0
    record = _Open(1)
    is_summary = False
    for line in lines_of(file, limit):
        data = b"" if line.data is None else line.data.strip()
        if _HASHES.fullmatch(data):
            is_summary = not is_summary
        is_rule = _RULE.fullmatch(data) and (not record.held or not record.held[-1].strip())
        if not (is_rule or is_summary or _HASHES.fullmatch(data) or _AGENTS.fullmatch(data)):
            record.add(line, limit)
            continue
        if not record.is_blank:
            yield _closed(record, index, source, limit)
            index += 1
        record = _Open(line.number + 1)
    if not record.is_blank:
        yield _closed(record, index, source, limit)


def _closed(record: _Open, index: int, source: str, limit: int) -> Raw | Rejected:
    if record.is_long:
        reason = too_long(record.size, limit)
        return Rejected(source=source, line=record.begins, id=str(index), reason=reason)
    text = b"\n".join(record.held)
    return Raw(str(index), record.begins, "text", text.removeprefix(BOM))
