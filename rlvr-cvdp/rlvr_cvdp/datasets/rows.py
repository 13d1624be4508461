"""Reads rows of the official data sets (v1.0.x, v1.1.0; agentic or not) as problems."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from attrs import frozen

from rlvr import ConfigError
from rlvr_cvdp import DATA
from rlvr_cvdp.answers.text_scores import ANSWER_FILES, rouge2
from rlvr_cvdp.datasets.compose import parse_services
from rlvr_cvdp.datasets.files import RowError, check_tree, target_path, texts, unix_lines
from rlvr_cvdp.datasets.from_public.rows import is_source_row, parse_source_row
from rlvr_cvdp.datasets.harness import cocotb_generation, has_python, needed_packages
from rlvr_cvdp.datasets.patch import apply_patch
from rlvr_cvdp.problem import CvdpProblem

COMPREHENSION = ("cid006", "cid008", "cid009", "cid010")
_BY_A_MODEL = ("cid009", "cid010")
COMMERCIAL = ("__VERIF_EDA_IMAGE__", "__LICENSE_NETWORK__")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@frozen(kw_only=True)
class Unsupported:
    """A row that yields no problem: its id, or `line N`, why, and the kind of reason."""

    id: str
    reason: str
    kind: str = "not a row"


def read_rows(path: Path) -> Iterator[CvdpProblem | Unsupported]:
    """
    The problems of a JSON Lines file, in order; rows that are none say why.

    Raises:
        ConfigError: The file is not there or cannot be read.
    """
    try:
        handle = path.open("rb")
    except OSError as error:
        raise ConfigError(
            f"cannot read the data set {path}: {error.strerror}\n"
            f"  try: a JSON Lines file of CVDP, such as cvdp_v1.1.0_*.jsonl, from: {DATA}"
        ) from None
    seen: set[str] = set()
    with handle:
        for number, line in enumerate(handle, 1):
            line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not line.strip():
                continue
            found = _read_line(number, line)
            if isinstance(found, CvdpProblem) and found.id in seen:
                found = Unsupported(id=f"line {number}", reason=f"the id {found.id} came before")
            seen.add(found.id)
            yield found


def _read_line(number: int, line: bytes) -> CvdpProblem | Unsupported:
    try:
        row = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError) as error:
        return Unsupported(id=f"line {number}", reason=f"not JSON: {error}")
    if not isinstance(row, dict) or not isinstance(row.get("id"), str):
        return Unsupported(id=f"line {number}", reason="not a CVDP row: it has no id")
    name = row["id"]
    if not name.strip() or not name.isprintable():
        return Unsupported(id=f"line {number}", reason="not a CVDP row: its id is no plain text")
    try:
        _check_text(number, line, row)
        return parse_source_row(row) if is_source_row(row) else parse_row(row)
    except ValueError as error:
        return Unsupported(id=name, reason=str(error), kind=getattr(error, "kind", "not a row"))
    except (TypeError, KeyError, AttributeError) as error:
        return Unsupported(id=name, reason=f"not a CVDP row: {error!r}")


def _check_text(number: int, line: bytes, row: Mapping[str, Any]) -> None:
    """Make sure that all of a row is Unicode: no other bytes, no halves of a surrogate pair."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        byte = f"byte {error.start + 1} is 0x{line[error.start]:02x}"
        raise RowError(f"line {number} is not UTF-8: {byte}", kind="encoding") from None
    if _SURROGATE.search(line):
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise RowError("it holds half of a surrogate pair", kind="encoding") from None


def parse_row(row: Mapping[str, Any]) -> CvdpProblem:
    """
    The problem of one official row.

    Raises:
        ValueError: The row cannot become a problem; the text is the reason that people read.
    """
    category, difficulty = _categories(row)
    if "_heavy_" in row["id"]:
        raise RowError("works on a whole repository (heavy)", kind="heavy")
    if category in _BY_A_MODEL:
        raise RowError(
            f"{category} is comprehension that a language model judges: no program can verify it",
            kind="judged by a model",
        )
    is_agentic = "input" not in row
    asked = row if is_agentic else row["input"]
    prompt, context = asked["prompt"], texts(asked.get("context") or {})
    if not isinstance(prompt, str):
        raise RowError("its prompt is not text")
    make_problem = partial(
        CvdpProblem,
        id=row["id"],
        category=category,
        difficulty=difficulty,
        prompt=prompt,
        context=context,
        split=str(row.get("split") or ""),
    )
    if category in COMPREHENSION:
        return make_problem(targets=(), harness={}, response=_response(row))
    harness = row.get("harness") or {}
    harness = texts(harness["files"] if isinstance(harness.get("files"), dict) else harness)
    solutions = row.get("patch") if is_agentic else (row.get("output") or {}).get("context")
    solutions = dict(solutions or {})
    if not harness:
        raise RowError("it has no harness", kind="harness")
    found = [name for name in COMMERCIAL if any(name in text for text in harness.values())]
    if found:
        raise RowError(f"needs a commercial simulator ({found[0]})", kind="commercial simulator")
    targets = tuple(dict.fromkeys(target_path(path) for path in solutions))
    if not targets:
        raise RowError("it names no file to write")
    if not has_python(harness):
        raise RowError("its harness has no Python to run", kind="harness")
    check_tree([*context, *harness, *targets])
    harness = unix_lines(harness)
    reference = {
        target_path(path): apply_patch(context.get(target_path(path), ""), text)
        if is_agentic
        else text
        for path, text in solutions.items()
        if text
    }
    return make_problem(
        targets=targets,
        harness=harness,
        reference=reference,
        services=parse_services(harness),
        generation=cocotb_generation(harness),
        needs=needed_packages(harness),
    )


def _categories(row: Mapping[str, Any]) -> tuple[str, str]:
    """Category (`cid003`; a number is one too) and difficulty."""
    named = row.get("categories") or []
    texts_of = [f"cid{c:03}" if isinstance(c, int) else str(c) for c in named]
    category = next((c for c in texts_of if c.startswith("cid")), "")
    return category, next((c for c in texts_of if not c.startswith("cid")), "")


def _response(row: Mapping[str, Any]) -> str:
    """The reference in words, from either form of row."""
    diffs = row.get("patch") or {}
    diff = next((diffs[name] for name in ANSWER_FILES if diffs.get(name)), "")
    found = row.get("subjective_reference") or (row.get("output") or {}).get("response")
    response = found or (apply_patch("", diff) if diff else "")
    if not isinstance(response, str) or not response.strip():
        raise RowError("it holds no reference answer to compare with", kind="no reference")
    try:
        rouge2("", response)
    except ValueError as error:
        raise RowError(str(error), kind="no reference") from None
    return response
