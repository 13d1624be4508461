"""Messages of iverilog, Verilator and Yosys, each with its file, line and severity."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from attrs import evolve, frozen

from rlvr_cvdp.results.bounded import bounded_json, bounded_text, shown_path

Tool = Literal["iverilog", "verilator", "yosys"]
Severity = Literal["error", "warning", "note"]
Place = tuple[str | None, str | None, str | None]

MAX_MESSAGES = 1_000
MAX_SHOWN = 50
_MAX_LINES = 50_000
_MAX_WIDTH = 2_000
_TEXT = 400
_NAME = 200
_NOWHERE: Place = (None, None, None)

# A column may be a range (`12.5-12.9`), as newer versions of Yosys write it.
_PLACE = re.compile(r"([^\s:()]+(?: [^\s:()]+)*):(\d{1,9})(?:[:.](\d{1,9}))?(?:-[\d.]+)?: ?(.*)")
_ICARUS = re.compile(r"(?:[\w.-]+ )?(error|warning|sorry|internal error|assert|debug): *(.*)")
_ICARUS_MORE = re.compile(r" *: *(.*)")
_ICARUS_EMPTY = re.compile(r"I give up\.?$|\d+ error\(s\) during elaboration\.|\*\*\*|\s")
_ICARUS_BAD = re.compile(
    r"syntax error|Include file|already declared|No such file|cannot|unable", re.I
)
_ICARUS_FILE = re.compile(r"(\S+): (No such file or directory.*|Unable to open .*)")
_CRASH = re.compile(r"Assertion .* failed|Segmentation fault|Aborted\b|internal error", re.I)
_VERILATOR = re.compile(r"%(Error|Warning)(?:-(\w+))?: (.*)")
_YOSYS = re.compile(r"(ERROR|Warning|warning): (.*)")
_YOSYS_PLACE = re.compile(r"\(([^\s():]+):(\d{1,9})\)|\bat ([^\s():]+):(\d{1,9})(?:\.(\d{1,9}))?")


@frozen(kw_only=True)
class ToolMessage:
    """
    One message of a tool; its fields are JSON values.

    Attributes:
        file: Relative to /code; "" where the tool names none. So with line and column.
        code: Verilator's own class of it (WIDTH, LATCH), "" with other tools.
    """

    tool: Tool
    file: str = ""
    line: int | None = None
    column: int | None = None
    severity: Severity
    code: str = ""
    text: str

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        kind = f"{self.severity} {self.code}".strip()
        return f"{place}: {kind}: {self.text}" if place else f"{kind}: {self.text}"


def read_messages(text: str, tool: Tool = "iverilog") -> tuple[ToolMessage, ...]:
    """
    The messages in a tool's output, in order, none twice, at most 1000.

    Lines that only count (`2 error(s) during elaboration.`, `Exiting due to 3 error(s)`) and
    quoted source lines are left out.
    """
    lines = [line[:_MAX_WIDTH].rstrip() for line in text.split("\n", _MAX_LINES)[:_MAX_LINES]]
    found: dict[ToolMessage, None] = {}
    for message in _READERS[tool](lines):
        found[message] = None
        if len(found) == MAX_MESSAGES:
            break
    return tuple(found)


def shown_messages(messages: Sequence[ToolMessage]) -> dict[str, Any]:
    """At most `MAX_SHOWN` messages for evidence, errors first, and how many were left out."""
    shown, left_out = bounded_json(messages, MAX_SHOWN, lambda m: m.severity == "error")
    return {"messages": shown, "messages_left_out": left_out}


def _message(
    tool: Tool, place: Place, severity: Severity, text: str, code: str = ""
) -> ToolMessage:
    """A message of bounded size; `place` are file, line and column as written."""
    file, line, column = place
    return ToolMessage(
        tool=tool,
        file=bounded_text(shown_path(file or ""), _NAME),
        line=int(line or 0) or None,
        column=int(column or 0) or None,
        severity=severity,
        code=code,
        text=bounded_text(text, _TEXT),
    )


def _iverilog(lines: Sequence[str]) -> Iterator[ToolMessage]:
    """Messages of iverilog; lines that go on (`file:3:      : It was declared here`) are joined."""
    last: ToolMessage | None = None
    for line in lines:
        found = _PLACE.match(line)
        rest = found[4] if found else line
        more = _ICARUS_MORE.fullmatch(rest)
        if more and last is not None:
            last = evolve(last, text=bounded_text(f"{last.text} {more[1]}", _TEXT))
            continue
        severity, words = _icarus_severity(rest, bool(found))
        place: Place = (found[1], found[2], None) if found else _NOWHERE
        if severity is None:
            missing = _ICARUS_FILE.fullmatch(line)
            if missing is None:
                continue
            place, severity, words = _NOWHERE, "error", f"{shown_path(missing[1])}: {missing[2]}"
        if last is not None:
            yield last
        last = _message("iverilog", place, severity, words)
    if last is not None:
        yield last


def _icarus_severity(rest: str, is_placed: bool) -> tuple[Severity | None, str]:
    kind = _ICARUS.match(rest)
    if kind:
        severity: Severity = "warning" if kind[1] == "warning" else "error"
        severity = "note" if kind[1] == "debug" else severity
        return severity, f"sorry: {kind[2]}" if kind[1] == "sorry" else kind[2]
    if is_placed and not _ICARUS_EMPTY.match(rest):
        return ("error" if _ICARUS_BAD.search(rest) else "note"), rest
    if _CRASH.search(rest) or rest.startswith("No top level modules"):
        return "error", rest
    return None, ""


def _verilator(lines: Sequence[str]) -> Iterator[ToolMessage]:
    for line in lines:
        match = _VERILATOR.match(line)
        if match is None or match[3].startswith("Exiting due to"):
            continue
        found = _PLACE.match(match[3])
        place: Place = (found[1], found[2], found[3]) if found else _NOWHERE
        text = found[4] if found else match[3]
        severity: Severity = "error" if match[1] == "Error" else "warning"
        yield _message("verilator", place, severity, text, match[2] or "")


def _yosys(lines: Sequence[str]) -> Iterator[ToolMessage]:
    for line in lines:
        found = _PLACE.match(line)
        match = _YOSYS.match(found[4] if found else line)
        if match is None:
            continue
        inner = _YOSYS_PLACE.search(match[2])
        place: Place = _NOWHERE
        if found:
            place = found[1], found[2], found[3]
        elif inner:
            place = inner[1] or inner[3], inner[2] or inner[4], inner[5]
        yield _message("yosys", place, "error" if match[1] == "ERROR" else "warning", match[2])


_READERS: Mapping[str, Callable[[Sequence[str]], Iterator[ToolMessage]]] = {
    "iverilog": _iverilog,
    "verilator": _verilator,
    "yosys": _yosys,
}
