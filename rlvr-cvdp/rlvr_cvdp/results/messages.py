"""Messages of iverilog, Verilator and Yosys, each with its file, line and severity."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from attrs import evolve, frozen

from rlvr_cvdp.results.bounded import bounded_json, bounded_text, shown_path

Tool = Literal["iverilog", "verilator", "yosys"]
Severity = Literal["error", "warning", "note"]

MAX_MESSAGES = 1_000
MAX_SHOWN = 50
_MAX_LINES = 50_000
_MAX_WIDTH = 2_000
_TEXT = 400
_NAME = 200

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

    What only counts or repeats (`2 error(s) during elaboration.`, `Exiting due to 3 error(s)`) and
    quoted source lines are left out.
    """
    lines = [line[:_MAX_WIDTH].rstrip() for line in text.split("\n", _MAX_LINES)[:_MAX_LINES]]
    found: dict[ToolMessage, None] = {}
    for message in _READERS[tool](lines):
        found[_bounded(message)] = None
        if len(found) == MAX_MESSAGES:
            break
    return tuple(found)


def shown_messages(messages: Sequence[ToolMessage], limit: int = MAX_SHOWN) -> dict[str, Any]:
    """At most `limit` messages for evidence, errors first, and how many were left out."""
    shown, left_out = bounded_json(messages, limit, lambda m: m.severity == "error")
    return {"messages": shown, "messages_left_out": left_out}


def _bounded(message: ToolMessage) -> ToolMessage:
    return evolve(
        message,
        text=bounded_text(message.text, _TEXT),
        file=bounded_text(message.file, _NAME),
        line=message.line or None,
        column=message.column or None,
    )


def _iverilog(lines: Sequence[str]) -> Iterator[ToolMessage]:
    """Messages of iverilog; lines that go on (`file:3:      : It was declared here`) are joined."""
    last: ToolMessage | None = None
    for line in lines:
        place = _PLACE.match(line)
        rest = place[4] if place else line
        more = _ICARUS_MORE.fullmatch(rest)
        if more and last is not None:
            last = evolve(last, text=f"{last.text} {more[1]}")
            continue
        severity, words = _icarus_severity(rest, bool(place))
        if severity is None:
            missing = _ICARUS_FILE.fullmatch(line)
            if missing is None:
                continue
            place, severity, words = None, "error", f"{shown_path(missing[1])}: {missing[2]}"
        if last is not None:
            yield last
        last = ToolMessage(
            tool="iverilog",
            file=shown_path(place[1]) if place else "",
            line=int(place[2]) if place else None,
            severity=severity,
            text=words,
        )
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
        place = _PLACE.match(match[3])
        yield ToolMessage(
            tool="verilator",
            file=shown_path(place[1]) if place else "",
            line=int(place[2]) if place else None,
            column=int(place[3]) if place and place[3] else None,
            severity="error" if match[1] == "Error" else "warning",
            code=match[2] or "",
            text=place[4] if place else match[3],
        )


def _yosys(lines: Sequence[str]) -> Iterator[ToolMessage]:
    for line in lines:
        place = _PLACE.match(line)
        match = _YOSYS.match(place[4] if place else line)
        if match is None:
            continue
        inner = None if place else _YOSYS_PLACE.search(match[2])
        file, number, column = "", "", ""
        if place:
            file, number, column = place[1], place[2], place[3] or ""
        elif inner:
            file, number, column = inner[1] or inner[3], inner[2] or inner[4], inner[5] or ""
        yield ToolMessage(
            tool="yosys",
            file=shown_path(file),
            line=int(number) if number else None,
            column=int(column) if column else None,
            severity="error" if match[1] == "ERROR" else "warning",
            text=match[2],
        )


_READERS: Mapping[str, Callable[[Sequence[str]], Iterator[ToolMessage]]] = {
    "iverilog": _iverilog,
    "verilator": _verilator,
    "yosys": _yosys,
}
