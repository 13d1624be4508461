"""Text and lists of records cut to a size that fits into evidence."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from attrs import AttrsInstance, asdict

_UNSHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")


RecordT = TypeVar("RecordT", bound=AttrsInstance)


def bounded_text(text: str, limit: int) -> str:
    """Text without control characters and blank ends, at most `limit` characters of it."""
    text = _UNSHOWN.sub("\N{REPLACEMENT CHARACTER}", text[: limit + 1000]).strip()
    return text if len(text) <= limit else text[: limit - 3] + "..."


def bounded_json(
    records: Sequence[RecordT], limit: int, is_important: Callable[[RecordT], bool]
) -> tuple[list[dict[str, Any]], int]:
    """At most `limit` records in their order, preferring important ones, and how many are left."""
    ranked = sorted(range(len(records)), key=lambda index: not is_important(records[index]))
    kept = sorted(ranked[:limit])
    return [asdict(records[index]) for index in kept], len(records) - len(kept)


def shown_path(path: str) -> str:
    """A path of the sandbox relative to /code (`/src` is `src`); of another one its last part."""
    path = path.strip()
    if path.startswith("/src/"):
        return path[1:]
    if path.startswith("/code/"):
        return path.removeprefix("/code/")
    return path.rsplit("/", 1)[-1] if path.startswith("/") else path.removeprefix("./")
