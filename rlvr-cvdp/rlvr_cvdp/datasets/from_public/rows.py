"""Rows for training only: a problem with a golden design or a testbench, as public sets have."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from rlvr_cvdp.datasets.compose import parse_services
from rlvr_cvdp.datasets.files import RowError, check_tree, target_path, texts
from rlvr_cvdp.datasets.from_public.golden import equivalence_harness
from rlvr_cvdp.datasets.from_public.testbench import PASS_PATTERN, bench_harness
from rlvr_cvdp.datasets.harness import cocotb_generation
from rlvr_cvdp.hdl.clocks import clocking_of
from rlvr_cvdp.hdl.names import code, instantiated, module_names
from rlvr_cvdp.hdl.ports import PortsError, header_of
from rlvr_cvdp.paths import VERILOG
from rlvr_cvdp.problem import CvdpProblem

SOURCE = "training"


def is_source_row(row: Mapping[str, Any]) -> bool:
    """Whether a row is of this format: it has a golden design or a testbench, and no harness."""
    return ("golden" in row or "testbench" in row) and "harness" not in row


def parse_source_row(row: Mapping[str, Any]) -> CvdpProblem:
    """
    The problem of such a row; `docs/training-sources.md` has all fields.

    Raises:
        ValueError: The row cannot become a problem; the text is the reason that people read.
    """
    prompt, golden, testbench = (_text(row, key) for key in ("prompt", "golden", "testbench"))
    if not prompt.strip():
        raise RowError("it has no prompt")
    if not golden.strip() and not testbench.strip():
        raise RowError("it has neither a golden design nor a testbench")
    context = texts(row.get("context") or {})
    given = [path for path in context if path.endswith(VERILOG)]
    top = _text(row, "top") or _top(golden, testbench)
    target = target_path(_text(row, "target") or f"rtl/{top}.sv")
    given = [path for path in given if path != target]
    secret = json.dumps([row["id"], golden, testbench])
    suffix = "_" + hashlib.sha256(secret.encode()).hexdigest()[:20]
    if testbench.strip():
        unsafe = _why_unsafe(testbench)
        if unsafe:
            reason = f"its testbench has {unsafe}, whose names an answer could reach"
            raise RowError(reason, kind="harness")
        harness = bench_harness(
            testbench,
            _bench_top(testbench),
            target=target,
            given=given,
            suffix=suffix,
            pass_pattern=_pattern(row, "pass_pattern") or PASS_PATTERN,
            fail_pattern=_pattern(row, "fail_pattern"),
        )
    else:
        harness = _equivalence(row, golden, top, target, given, suffix)
    check_tree([*context, *harness, target])
    if not re.search(rf"\b{re.escape(top)}\b", prompt):
        prompt = f"{prompt.rstrip()}\n\nName the top module `{top}`.\n"
    return CvdpProblem(
        id=row["id"],
        category=_text(row, "category") or "training",
        difficulty=_text(row, "difficulty"),
        prompt=prompt,
        context=context,
        targets=(target,),
        harness=harness,
        reference={target: golden} if golden.strip() else {},
        services=parse_services(harness),
        generation=cocotb_generation(harness),
        split=_text(row, "split"),
        source=SOURCE,
    )


def _equivalence(
    row: Mapping[str, Any], golden: str, top: str, target: str, given: list[str], suffix: str
) -> dict[str, str]:
    try:
        header = header_of(golden, top)
    except PortsError as error:
        raise RowError(f"its golden design cannot be driven: {error}", kind="harness") from None
    inputs = header.named("input")
    clocks, resets = row.get("clock"), row.get("reset")
    named = [clocks] if isinstance(clocks, str) else list(clocks or [])
    if resets is not None:
        resets = {resets: 1} if isinstance(resets, str) else dict(resets)
    unknown = {*named, *(resets or {})} - {port.name for port in inputs}
    if unknown:
        raise RowError(f"its golden design has no input {sorted(unknown)[0]}", kind="harness")
    return equivalence_harness(
        golden,
        top,
        header,
        clocking_of(golden, inputs, clocks=named, resets=resets),
        target=target,
        given=given,
        suffix=suffix,
        cycles=_count(row, "cycles", 200),
        episodes=_count(row, "episodes", 4),
    )


def _top(golden: str, testbench: str) -> str:
    """The module to write: the golden design's only root, or what the testbench lacks."""
    if golden.strip():
        roots = _roots(golden)
        if len(roots) == 1:
            return roots[0]
        raise RowError("which module of it is the top is not clear; name it with top")
    missing = sorted(instantiated(testbench) - set(module_names(testbench)))
    if len(missing) == 1:
        return missing[0]
    raise RowError("which module its testbench tests is not clear; name it with top")


def _bench_top(testbench: str) -> str:
    roots = _roots(testbench)
    if len(roots) != 1:
        raise RowError("its testbench has no module that is clearly the top", kind="harness")
    return roots[0]


def _why_unsafe(testbench: str) -> str:
    """The part of a testbench whose names cannot be hidden from an answer, "" for none."""
    for token in code(testbench):
        if token.kind == "escaped":
            return f"the escaped name {token.text}"
        if token.kind == "name" and token.text in ("generate", "genvar", "bind"):
            return token.text
    return ""


def _roots(text: str) -> list[str]:
    """The modules that the text defines and does not instantiate."""
    used = instantiated(text)
    return [name for name in module_names(text) if name not in used]


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RowError(f"its {key} is not text")
    return value


def _pattern(row: Mapping[str, Any], key: str) -> str:
    pattern = _text(row, key)
    try:
        re.compile(pattern)
    except re.error as error:
        raise RowError(f"its {key} is no regular expression: {error}") from None
    return pattern


def _count(row: Mapping[str, Any], key: str, default: int) -> int:
    value = row.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 100_000:
        raise RowError(f"its {key} is not a whole number from 1 to 100000")
    return value
