"""Rows of the official data sets (v1.0.x, v1.1.0; agentic or not) to one kind of problem."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from rlvr.errors import ConfigError
from rlvr_cvdp.compose import HarnessError, parse_services
from rlvr_cvdp.harness import cocotb_generation, has_python, needed_packages
from rlvr_cvdp.patch import apply_patch
from rlvr_cvdp.paths import answer_path, tree_path
from rlvr_cvdp.problem import CvdpProblem

COMPREHENSION = ("cid006", "cid008", "cid009", "cid010")
COMMERCIAL = "__VERIF_EDA_IMAGE__"


@frozen(kw_only=True)
class Unsupported:
    """A row that yields no problem: its id, or `line N`, and why."""

    id: str
    reason: str


def read_rows(path: Path) -> Iterator[CvdpProblem | Unsupported]:
    """
    The problems of a JSON Lines file, in order; rows that are none say why.

    Raises:
        ConfigError: The file is not there or cannot be read.
    """
    try:
        handle = path.open(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise ConfigError(
            f"cannot read the data set {path}: {error.strerror}\n"
            "  try: a JSON Lines file of CVDP, such as cvdp_v1.1.0_*.jsonl"
        ) from None
    seen: set[str] = set()
    with handle:
        for number, line in enumerate(handle, 1):
            if not line.strip():
                continue
            found = _read_line(number, line)
            if isinstance(found, CvdpProblem) and found.id in seen:
                found = Unsupported(id=f"line {number}", reason=f"the id {found.id} came before")
            seen.add(found.id)
            yield found


def _read_line(number: int, line: str) -> CvdpProblem | Unsupported:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Unsupported(id=f"line {number}", reason=f"not JSON: {error}")
    if not isinstance(row, dict) or not isinstance(row.get("id"), str):
        return Unsupported(id=f"line {number}", reason="not a CVDP row: it has no id")
    try:
        return parse_row(row)
    except (HarnessError, ValueError) as error:
        return Unsupported(id=row["id"], reason=str(error))
    except (TypeError, KeyError, AttributeError) as error:
        return Unsupported(id=row["id"], reason=f"not a CVDP row: {error!r}")


def parse_row(row: Mapping[str, Any]) -> CvdpProblem:
    """
    The problem of one official row.

    Raises:
        ValueError: The row cannot become a problem; the text is the reason that people read.
    """
    categories = [str(c) for c in row.get("categories") or []]
    category = next((c for c in categories if c.startswith("cid")), "")
    difficulty = next((c for c in categories if not c.startswith("cid")), "")
    if "_heavy_" in row["id"]:
        raise ValueError("works on a whole repository (heavy)")
    if category in COMPREHENSION:
        raise ValueError(f"{category} is comprehension: scored by text, not by a harness")
    if "input" in row:
        prompt = row["input"]["prompt"]
        context = _texts(row["input"].get("context") or {})
        solutions = dict((row.get("output") or {}).get("context") or {})
        harness = _texts((row.get("harness") or {}).get("files") or {})
        reference = {path: text for path, text in solutions.items() if text}
    else:
        prompt = row["prompt"]
        context = _texts(row.get("context") or {})
        solutions = dict(row.get("patch") or {})
        harness = _texts(row.get("harness") or {})
        reference = {
            path: apply_patch(context.get(path, ""), diff)
            for path, diff in solutions.items()
            if diff
        }
    if not harness:
        raise ValueError("it has no harness")
    if any(COMMERCIAL in text for text in harness.values()):
        raise ValueError("needs a commercial simulator (__VERIF_EDA_IMAGE__)")
    targets = tuple(_target(path) for path in solutions)
    if not targets:
        raise ValueError("it names no file to write")
    if not has_python(harness):
        raise ValueError("its harness has no Python to run")
    return CvdpProblem(
        id=row["id"],
        category=category,
        difficulty=difficulty,
        prompt=prompt,
        context=context,
        targets=targets,
        harness=harness,
        reference={_target(path): text for path, text in reference.items()},
        services=parse_services(harness),
        generation=cocotb_generation(harness),
        needs=needed_packages(harness),
        split=str(row.get("split") or ""),
    )


def _texts(files: Mapping[str, str | None]) -> dict[str, str]:
    kept = {}
    for path, text in files.items():
        normal = tree_path(path)
        if normal is None:
            raise ValueError(f"a file of it lies outside its tree: {path}")
        if text is not None:
            kept[normal] = text
    return kept


def _target(path: str) -> str:
    normal = answer_path(path)
    if normal is None:
        raise ValueError(f"the file to write lies outside rtl, verif and docs: {path}")
    return normal
