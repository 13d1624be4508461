"""Each cocotb test of a launch: its status, message, place and time, from the launch's XML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from xml.parsers import expat

from attrs import evolve, frozen

from rlvr_cvdp.results.bounded import bounded_json, bounded_text, shown_path
from rlvr_cvdp.results.log import Failure
from rlvr_cvdp.results.plain import read_plain

Status = Literal["passed", "failed", "error", "skipped"]

MAX_BYTES = 8_000_000
MAX_TESTS = 20_000
MAX_SHOWN = 200
_MAX_DEPTH = 20
_MESSAGE = 500
_NAME = 200


@frozen(kw_only=True)
class TestResult:
    """
    One cocotb test in one launch of the simulator; its fields are JSON values.

    Attributes:
        module: The Python module that holds it.
        service: The service of the harness that ran it.
        launch: Number of the launch within its service, from 1; 0: it launched none.
        status: "error" is a launch that left no readable results, or an item of pytest that
            failed before it launched a simulation; all others are cocotb's word.
        message: First lines of what was raised, "" where nothing is known.
        file, line: Where it was raised; where that is not known, where the test is defined.
        sim_time_ns: Simulated time, seconds: wall-clock time.
    """

    __test__ = False

    name: str
    module: str = ""
    service: str = ""
    launch: int = 1
    status: Status
    message: str = ""
    file: str = ""
    line: int | None = None
    sim_time_ns: float = 0.0
    seconds: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether it counts among the tests: skipped ones do not."""
        return self.status != "skipped"


def read_tests(
    xml: str | Path,
    launch: int,
    *,
    failures: Mapping[str, Failure] | None = None,
    why_none: str = "the simulation left no results",
) -> tuple[TestResult, ...]:
    """
    The tests of a launch in their order; one "error" if the XML cannot be used.

    Args:
        xml: The text, or the path, of what cocotb 1.9 or 2.0 wrote.
        launch: The launch's number.
        failures: What the launch's log says about failing tests (`log.read_failures`): cocotb 1.9
            writes no message into its XML, and neither writes where the failure was.
        why_none: What an "error" says where there are no results.

    Document types and entities are refused, the size and the number of tests are limited.
    """
    try:
        text = xml if isinstance(xml, str) else read_plain(xml, most=MAX_BYTES + 1)
        cases = _Cases().read(text)
    except _Unreadable as error:
        return (TestResult(name="", launch=launch, status="error", message=str(error)),)
    if not cases:
        return (TestResult(name="", launch=launch, status="error", message=why_none),)
    return tuple(_result(case, launch, failures or {}) for case in cases)


def shown_tests(tests: Sequence[TestResult]) -> dict[str, Any]:
    """At most `MAX_SHOWN` tests for evidence, failing ones first, and how many were left out."""
    shown, left_out = bounded_json(tests, MAX_SHOWN, lambda t: t.status in ("failed", "error"))
    return {"tests": shown, "tests_left_out": left_out}


class _Unreadable(Exception):
    """The results are not in cocotb's format."""


class _Case:
    def __init__(self, attributes: Mapping[str, str]) -> None:
        self.attributes = attributes
        self.status: Status = "passed"
        self.message = ""


class _Cases:
    """Collects `<testcase>` elements while the text is parsed; builds no tree."""

    def __init__(self) -> None:
        self._cases: list[_Case] = []
        self._open: _Case | None = None
        self._depth = 0

    def read(self, text: str) -> list[_Case]:
        if not text.strip():
            return []
        if len(text) > MAX_BYTES:
            raise _Unreadable(f"the results hold more than {MAX_BYTES // 1_000_000} MB")
        parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.StartDoctypeDeclHandler = self._doctype
        try:
            parser.Parse(text.encode("utf-8", "replace"), True)
        except (expat.ExpatError, ValueError) as error:
            raise _Unreadable(f"the results are no XML: {error}") from None
        return self._cases

    def _doctype(self, *_: object) -> None:
        raise _Unreadable("the results declare a document type, which cocotb never does")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _Unreadable("the results are nested too deep")
        if tag == "testcase":
            if len(self._cases) >= MAX_TESTS:
                raise _Unreadable(f"the results hold more than {MAX_TESTS} tests")
            self._open = _Case(attributes)
            self._cases.append(self._open)
        elif self._open is not None and tag in ("failure", "error"):
            self._open.status, self._open.message = "failed", _said(attributes)
        elif self._open is not None and tag == "skipped" and self._open.status == "passed":
            self._open.status = "skipped"

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if tag == "testcase":
            self._open = None


def _said(attributes: Mapping[str, str]) -> str:
    """The exception and its text from 2.0; "" for 1.9, which only repeats the seed."""
    kind = attributes.get("error_type", "")
    text = attributes.get("error_msg", "")
    if kind == "NoneType":
        return ""
    if kind:
        return f"{kind}: {text}" if text else kind
    message = attributes.get("msg") or attributes.get("message") or ""
    return "" if message.startswith("Test failed with RANDOM_SEED") else message


def _result(case: _Case, launch: int, failures: Mapping[str, Failure]) -> TestResult:
    attributes = case.attributes
    file = attributes.get("file", "")
    file = "" if "/site-packages/" in file else file  # cocotb's own wrapper of a test
    result = TestResult(
        name=bounded_text(attributes.get("name", ""), _NAME),
        module=bounded_text(attributes.get("classname", ""), _NAME),
        launch=launch,
        status=case.status,
        message=bounded_text(case.message, _MESSAGE),
        file=bounded_text(shown_path(file), _NAME),
        line=_line(attributes.get("lineno", "")) if file else None,
        sim_time_ns=_number(attributes.get("sim_time_ns", "")),
        seconds=round(_number(attributes.get("time", "")), 6),
    )
    name, module = attributes.get("name", ""), attributes.get("classname", "")
    found = failures.get(f"{module}.{name}") or failures.get(name)
    if found is None and not case.message:
        found = failures.get("")
    if case.status != "failed" or found is None:
        return result
    # A bare `assert` has no text in the XML; the log has its source line.
    is_richer = not case.message or (":" not in case.message and case.message in found.message)
    if is_richer and found.message:
        result = evolve(result, message=bounded_text(found.message, _MESSAGE))
    if found.file:
        result = evolve(result, file=bounded_text(found.file, _NAME), line=found.line)
    return result


def _line(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else None


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) and number >= 0 else 0.0
