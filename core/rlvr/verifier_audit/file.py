"""The file of an audit: one JSON object, written again after each problem, and read again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import define, field

from rlvr.errors import ConfigError
from rlvr.records.atomic import write_out
from rlvr.records.json_lines import object_in
from rlvr.records.run_directory import now
from rlvr.verifier_audit.findings import ProblemAudit

VERSION = 1


@define
class AuditFile:
    """
    The growing result of an audit.

    Attributes:
        path: Where it is kept; None: nowhere, only in memory.
        head: Plugin, data set, options and versions: what the result depends on.
        weak: Share of rejected mutants below which a problem is weak.
    """

    path: Path | None
    head: Mapping[str, Any]
    weak: float
    problems: dict[str, Any] = field(factory=dict)
    created: str = field(factory=now)

    @classmethod
    def open(cls, path: Path | None, head: Mapping[str, Any], weak: float) -> AuditFile:
        """
        A file to add to; what an equal audit has left there is kept.

        So one that was interrupted, or asked about some problems only, can be gone on with.
        """
        head = json.loads(json.dumps(head))
        before: Mapping[str, Any] = {}
        if path is not None:
            with suppress(OSError, ValueError):
                before = object_in(path)
        if all(before.get(name) == value for name, value in {**head, "version": VERSION}.items()):
            return cls(path, head, weak, dict(before["problems"]), before["created"])
        return cls(path, head, weak)

    def add(self, audit: ProblemAudit) -> None:
        """Note a finished problem and write all that is known."""
        self.problems[audit.problem.id] = audit.to_json(self.weak)
        if self.path is not None:
            text = json.dumps(self.to_json(), indent=1, ensure_ascii=False)
            write_out(self.path, text + "\n")

    def to_json(self) -> dict[str, Any]:
        """The whole document."""
        return {
            "version": VERSION,
            "plugin": self.head["plugin"],
            "dataset": self.head["dataset"],
            "created": self.created,
            **{n: v for n, v in self.head.items() if n not in ("plugin", "dataset")},
            "problems": self.problems,
        }


def read_strengths(path: Path, asked_by: str) -> Mapping[str, float | None]:
    """
    Problem id to the share of wrong answers that its verifier rejected; None where not known.

    Args:
        path: What `rlvr audit --out` wrote.
        asked_by: The option that names it, for messages.

    Raises:
        ConfigError: The file is not there, is not readable, or is no audit of this version.
    """
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unread(path, asked_by, error.strerror or str(error)) from None
    except (ValueError, RecursionError) as error:
        raise _unread(path, asked_by, f"not JSON: {error}") from None
    if not isinstance(record, dict) or not isinstance(record.get("problems"), dict):
        raise _unread(path, asked_by, 'no object with "problems"')
    if record.get("version") != VERSION:
        found = f"version {record.get('version')!r}, and this is read: {VERSION}"
        raise _unread(path, asked_by, found)
    for name, entry in record["problems"].items():
        if not isinstance(entry, dict) or not _is_share(entry.get("strength", "")):
            found = f'problem {name} has no "strength" of 0 to 1, or null'
            raise _unread(path, asked_by, found)
    return {name: entry["strength"] for name, entry in record["problems"].items()}


def _is_share(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _unread(path: Path, asked_by: str, found: str) -> ConfigError:
    return ConfigError(
        f"the audit {path} was to be read ({asked_by}).",
        f"found: {found}",
        "make one with: rlvr audit --plugin NAME --dataset FILE --out AUDIT.json",
    )
