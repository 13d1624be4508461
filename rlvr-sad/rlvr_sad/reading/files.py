"""What a file holds: JSON lines, a JSON document, YAML or text. Found by content, not by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import yaml

from rlvr_sad.reading.array import ArrayError, elements_of
from rlvr_sad.reading.lines import lines_of, not_utf8, too_long
from rlvr_sad.reading.raw import MAX_RECORD, Raw, Rejected
from rlvr_sad.reading.texts import texts_of

_BOM = b"\xef\xbb\xbf"
_LINES = frozenset({".jsonl", ".ndjson"})
_YAML = frozenset({".yaml", ".yml"})

Found = Iterator[Raw | Rejected]
Claims = Callable[[Any], bool]


def records_of(path: Path, claims: Claims, *, source: str = "", limit: int = MAX_RECORD) -> Found:
    """
    The records of a file in order; what cannot be read comes as `Rejected`.

    Args:
        path: The file.
        claims: Whether some format knows a value: a list of messages is then one record, and an
            object that none knows is taken for key and record pairs.
        source: What the file is called in reports.
        limit: Bytes of one record, at most.

    Raises:
        OSError: The file cannot be opened.
    """
    source = source or str(path)
    with path.open("rb") as file:
        start = file.read(4096)
        file.seek(0)
        first = start.removeprefix(_BOM).lstrip()[:1]
        if start.startswith((b"\xff\xfe", b"\xfe\xff")):
            yield Rejected(
                source=source, line=1, id="0", reason="it is UTF-16: convert it to UTF-8"
            )
        elif not first and not file.read(4097)[4096:]:
            yield Rejected(source=source, line=1, id="0", reason="the file is empty")
        elif path.suffix.lower() in _LINES:
            yield from _json_lines(file, source, limit)
        elif path.suffix.lower() in _YAML:
            yield from _yaml(file, source, claims, limit)
        elif first == b"[":
            yield from _array(file, source, claims, limit, is_named_json(path))
        elif first == b"{":
            yield from _objects(file, source, claims, limit, is_named_json(path))
        else:
            yield from texts_of(file, source, limit)


def is_named_json(path: Path) -> bool:
    """True where the name promises JSON: a file that is none is then broken, not a text."""
    return path.suffix.lower() in (".json", ".traj")


def _json_lines(file: IO[bytes], source: str, limit: int) -> Found:
    index = 0
    for line in lines_of(file, limit):
        name = str(index)
        if line.data is None:
            reason = too_long(line.size, limit)
            yield Rejected(source=source, line=line.number, id=name, reason=reason)
        elif line.data.strip():
            yield Raw(name, line.number, "json", line.data.removeprefix(_BOM))
        else:
            continue
        index += 1


def _array(file: IO[bytes], source: str, claims: Claims, limit: int, is_json: bool) -> Found:
    """An array of records, or of the steps of one record."""
    head: list[Any] = []
    try:
        for element in elements_of(file, limit):
            head.append(element.value)
            if len(head) == 3:
                break
    except ArrayError as error:
        if not head:
            file.seek(0)
            if is_json:
                yield Rejected(source=source, line=error.line, id="0", reason=str(error))
            else:
                yield from texts_of(file, source, limit)
            return
    file.seek(0)
    if claims(head):
        yield from _whole(file, source, limit)
        return
    index = 0
    try:
        for element in elements_of(file, limit):
            yield Raw(str(index), element.line, "json", element.text.encode("utf-8"))
            index += 1
    except ArrayError as error:
        if "more after the end" in str(error) and index:
            file.seek(0)
            if all(line.data is None or _is_json(line.data) for line in lines_of(file, limit)):
                reason = "it is one list a line: name the file .jsonl"
                yield Rejected(source=source, line=error.line, id=str(index), reason=reason)
                return
        reason = f"{error}; what comes after cannot be read"
        yield Rejected(source=source, line=error.line, id=str(index), reason=reason)


def _objects(file: IO[bytes], source: str, claims: Claims, limit: int, is_json: bool) -> Found:
    """JSON lines, one object, or an object of keys and records."""
    first = next((line for line in lines_of(file, limit) if line.data != b""), None)
    more = file.read(1 << 16).strip()
    file.seek(0)
    if first is not None and more and (first.data is None or _is_json(first.data)):
        yield from _json_lines(file, source, limit)
        return
    data = file.read(limit + 1)
    if len(data) > limit:
        size = file.seek(0, 2)
        yield Rejected(source=source, line=1, id="0", reason=too_long(size, limit))
        return
    try:
        value = json.loads(data.removeprefix(_BOM).decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        yield Rejected(source=source, line=line, id="0", reason=not_utf8(data, error))
        return
    except json.JSONDecodeError as error:
        if is_json or not _is_prose(data):
            reason = f"it is no JSON: {error.msg}"
            yield Rejected(source=source, line=error.lineno, id="0", reason=reason)
        else:
            file.seek(0)
            yield from texts_of(file, source, limit)
        return
    yield from _members(value, data, claims)


def _members(value: dict[str, Any], data: bytes, claims: Claims) -> Found:
    values = list(value.values())
    if not claims(value) and values and all(claims(v) for v in values[:3]):
        at, line = 0, 1
        for key, member in value.items():
            written = json.dumps(key, ensure_ascii=False).encode()
            here = max(data.find(written, at), at)
            line += data.count(b"\n", at, here)
            at = here
            yield Raw(key, line, "json", json.dumps(member, ensure_ascii=False).encode())
    else:
        yield Raw("0", 1, "json", data.removeprefix(_BOM))


def _whole(file: IO[bytes], source: str, limit: int) -> Found:
    data = file.read(limit + 1)
    if len(data) > limit:
        size = file.seek(0, 2)
        yield Rejected(source=source, line=1, id="0", reason=too_long(size, limit))
    else:
        yield Raw("0", 1, "json", data.removeprefix(_BOM))


def _yaml(file: IO[bytes], source: str, claims: Claims, limit: int) -> Found:
    data = file.read(limit + 1)
    if len(data) > limit:
        reason = too_long(file.seek(0, 2), limit)
        yield Rejected(source=source, line=1, id="0", reason=reason)
        return
    try:
        documents = list(yaml.safe_load_all(data.decode("utf-8")))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        yield Rejected(source=source, line=line, id="0", reason=not_utf8(data, error))
        return
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        reason = f"it is no YAML: {getattr(error, 'problem', None) or 'cannot be parsed'}"
        yield Rejected(source=source, line=line, id="0", reason=reason)
        return
    values = documents[0] if len(documents) == 1 and isinstance(documents[0], list) else documents
    if values is not documents and claims(values):
        values = [values]
    for index, value in enumerate(values):
        text = json.dumps(value, ensure_ascii=False, default=str)
        yield Raw(str(index), 1, "json", text.encode())


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data.removeprefix(_BOM) or b"null")
    except ValueError:
        return False
    return True


def _is_prose(data: bytes) -> bool:
    """True where a text only happens to begin with a brace: no key follows it."""
    return re.match(rb'\s*\{\s*"', data.removeprefix(_BOM)) is None
