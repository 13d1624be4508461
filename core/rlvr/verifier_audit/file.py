"""The file of an audit: one JSON object, written again after each problem."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import define, field

from rlvr.records.atomic import write_out
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
        if path is not None and path.is_file():
            try:
                before = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError, RecursionError):
                before = None
            if isinstance(before, dict) and before.get("version") == VERSION and all(
                before.get(name) == value for name, value in head.items()
            ):  # fmt: skip
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
