"""Reads the records of a file: JSON lines, a JSON document, YAML or text, told by its content."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import yaml
from attrs import define, field, frozen

from rlvr import ConfigError
from rlvr_sad.formats.catalog import claimant
from rlvr_sad.sessions.array import elements_of
from rlvr_sad.sessions.record import (
    BOM,
    MAX_RECORD,
    BrokenFileError,
    Line,
    Raw,
    Rejected,
    lines_of,
    not_utf8,
    too_long,
)

_LINES = frozenset({".jsonl", ".ndjson"})
_YAML = frozenset({".yaml", ".yml"})
_JSON = frozenset({".json", ".traj"})
"""Names that promise JSON: a file that is none is then broken, not a text."""

Found = Iterator[Raw | Rejected]


def records_of(path: Path, *, limit: int = MAX_RECORD) -> Found:
    """
    The records of a file in order; what cannot be read comes as `Rejected`.

    A list of messages that some format knows is one record, and an object that none knows is taken
    for key and record pairs.

    Args:
        path: The file.
        limit: Bytes of one record, at most.

    Raises:
        ConfigError: The file cannot be opened.
    """
    try:
        with path.open("rb") as file:
            reader = _Reader(file, str(path), limit, path.suffix.lower() in _JSON)
            try:
                yield from reader.records(path.suffix.lower())
            except BrokenFileError as error:
                yield reader.rejected(str(error), error.line)
    except OSError as error:
        raise ConfigError(
            f"{path} was to be read.", f"found: {error.strerror}", "give a readable file"
        ) from error


@frozen
class _Reader:
    """Reads one open file; what makes all of it unreadable is a `BrokenFileError`."""

    file: IO[bytes]
    source: str
    limit: int
    is_json: bool

    def rejected(self, reason: str, line: int, index: int = 0) -> Rejected:
        return Rejected(source=self.source, line=line, id=str(index), reason=reason)

    def records(self, suffix: str) -> Found:
        start = self.file.read(4096)
        first = start.removeprefix(BOM).lstrip()[:1]
        if start.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise BrokenFileError("it is UTF-16: convert it to UTF-8")
        if not first and not self.file.read(1):
            raise BrokenFileError("the file is empty")
        self.file.seek(0)
        if suffix in _LINES:
            return self.json_lines()
        if suffix in _YAML:
            return self.yaml()
        return {b"[": self.array, b"{": self.objects}.get(first, self.texts)()

    def texts(self) -> Found:
        self.file.seek(0)
        return texts_of(self.file, self.source, self.limit)

    def json_lines(self) -> Found:
        index = 0
        for line in lines_of(self.file, self.limit):
            if line.data is None:
                yield self.rejected(too_long(line.size, self.limit), line.number, index)
            elif line.data.strip():
                yield Raw(str(index), line.number, "json", line.data.removeprefix(BOM))
            else:
                continue
            index += 1

    def array(self) -> Found:
        """An array of records, or of the steps of one record."""
        head: list[Any] = []
        try:
            for element in islice(elements_of(self.file, self.limit), 3):
                head.append(element.value)
        except BrokenFileError:
            if not head:
                if self.is_json:
                    raise
                yield from self.texts()
                return
        self.file.seek(0)
        if claimant(head):
            yield Raw("0", 1, "json", self.whole())
            return
        index = 0
        try:
            for element in elements_of(self.file, self.limit):
                yield Raw(str(index), element.line, "json", element.text.encode("utf-8"))
                index += 1
        except BrokenFileError as error:
            reason = f"{error}; what comes after cannot be read"
            if "more after the end" in str(error) and index:
                self.file.seek(0)
                lines = lines_of(self.file, self.limit)
                if all(line.data is None or _is_json(line.data) for line in lines):
                    reason = "it is one list a line: name the file .jsonl"
            yield self.rejected(reason, error.line, index)

    def objects(self) -> Found:
        """JSON lines, one object, or an object of keys and records."""
        first = next((line for line in lines_of(self.file, self.limit) if line.data != b""), None)
        more = self.file.read(1 << 16).strip()
        self.file.seek(0)
        if first is not None and more and (first.data is None or _is_json(first.data)):
            return self.json_lines()
        data = self.whole()
        text = _text(data)
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            if self.is_json or re.match(r'\s*\{\s*"', text):  # else a text that begins with a brace
                raise BrokenFileError(f"it is no JSON: {error.msg}", error.lineno) from None
            return self.texts()
        members = list(value.values())
        if not claimant(value) and members and all(map(claimant, members[:3])):
            return _members(value, data)
        return iter([Raw("0", 1, "json", data)])

    def yaml(self) -> Found:
        try:
            documents = list(yaml.safe_load_all(_text(self.whole())))
        except yaml.YAMLError as error:
            mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
            reason = f"it is no YAML: {problem or 'cannot be parsed'}"
            raise BrokenFileError(reason, mark.line + 1 if mark is not None else 1) from None
        is_list = len(documents) == 1 and isinstance(documents[0], list)
        values = documents[0] if is_list and not claimant(documents[0]) else documents
        for index, value in enumerate(values):
            text = json.dumps(value, ensure_ascii=False, default=str)
            yield Raw(str(index), 1, "json", text.encode())

    def whole(self) -> bytes:
        """All of the file as one record."""
        data = self.file.read(self.limit + 1)
        if len(data) > self.limit:
            raise BrokenFileError(too_long(self.file.seek(0, 2), self.limit))
        return data.removeprefix(BOM)


def _members(value: dict[str, Any], data: bytes) -> Found:
    """The records of an object of keys and records, each at the line of its key."""
    at, line = 0, 1
    for key, member in value.items():
        written = json.dumps(key, ensure_ascii=False).encode()
        here = max(data.find(written, at), at)
        line += data.count(b"\n", at, here)
        at = here
        yield Raw(key, line, "json", json.dumps(member, ensure_ascii=False).encode())


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BrokenFileError(not_utf8(data, error), line) from None


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data.removeprefix(BOM) or b"null")
    except ValueError:
        return False
    return True


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
