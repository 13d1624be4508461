"""Reads the notes of the sandbox's own programs about a service, except its launches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_cvdp.problem import Service
from rlvr_cvdp.results.bounded import bounded_text, shown_path
from rlvr_cvdp.results.messages import ToolMessage, read_messages
from rlvr_cvdp.results.plain import read_all
from rlvr_cvdp.results.share import Item
from rlvr_cvdp.results.tests import Status, TestResult
from rlvr_cvdp.sandbox.recorder import Record

_MESSAGE = 500
_ITEM = re.compile(r"^\S+\.py::\S+ ", re.MULTILINE)
"""The name that pytest writes before an item's own output, on the same line."""


def read_notes(record: Record) -> list[dict[str, Any]]:
    """The notes about pytest's items, each with the number of launches before it."""
    launches = 0
    notes = []
    for note in record.notes:
        launches += note.kind in ("launch", "unbuilt")
        if note.kind == "item":
            notes.append({**note.body, "launches": launches})
    return notes


def own_tests(
    service: Service, items: Sequence[Item], notes: Sequence[Mapping[str, Any]]
) -> Iterator[TestResult]:
    """Items of pytest that launched no simulation: tests of their own, or ended before one."""
    said = {note["item"]: str(note["text"]) for note in notes if note.get("text")}
    for item in items:
        if item.launches:
            continue
        wrong: Status = "error" if service.runs_cocotb else "failed"
        path, _, name = item.name.partition("::")
        yield TestResult(
            name=bounded_text(name, 200),
            launch=0,
            status="passed" if item.is_passed else wrong,
            message="" if item.is_passed else bounded_text(said.get(item.name, ""), _MESSAGE),
            file=shown_path(path),
        )


def service_messages(service: Service, out: Path, output: str) -> tuple[ToolMessage, ...]:
    """Messages of the compiler in failed builds, and of the service's linter or synthesizer."""
    text = "\n".join(read_all(sorted(out.glob("*.build")), most=16_000_000))
    found = read_messages(text, "iverilog")
    output = _ITEM.sub("", output) if service.tool else ""
    if service.tool == "verilator":
        found += read_messages(output, "verilator")
    elif service.tool == "yosys":
        found += read_messages(output, "yosys")
    return found
