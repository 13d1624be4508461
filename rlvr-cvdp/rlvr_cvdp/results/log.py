"""Reads failing tests from cocotb's log: the exception, and the line that raised it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attrs import frozen

from rlvr_cvdp.results.bounded import shown_path

_RECORD = re.compile(r" *(?:\d+\.\d+|-\.--)ns [A-Z]+ +(\S+) +(.*)")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_NAMED = re.compile(r"(.+?) failed(?:: (.*))?$")
_SHUT = re.compile(r"Failing test at simulator request [^:]*: (.*)")
_FRAME = re.compile(r'\s*File "([^"]+)", line (\d+), in ')
_RAISED = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?$")
_MARKS = re.compile(r"[\s^~]*$")
_TRACEBACK = "Traceback (most recent call last):"
_LIBRARY = re.compile(r"/site-packages/|/lib/python3")
_INDENT = " " * 10
_MAX_LINES = 200_000
_MAX_FAILURES = 5_000
_MAX_DETAILS = 200
_MAX_WIDTH = 2_000
_MESSAGE_LINES = 4


@frozen(kw_only=True)
class Failure:
    """The exception of a failing test and the harness's line that raised it, if known."""

    message: str = ""
    file: str = ""
    line: int | None = None


def read_failures(log: str) -> tuple[dict[str, Failure], ...]:
    """
    Failing tests by the name they have in the log, a mapping for each simulation in it.

    cocotb 2.0 puts the module before the name, 1.9 does not. Under "" stands why the simulator
    ended before its time. Designs may print whatever they like into the log: it is good for a
    person's eyes, never for a verdict.
    """
    simulations: list[dict[str, Failure]] = []
    before: list[str] = []
    found = 0
    for logger, text, lines in _records(log):
        if logger == "cocotb" and text.startswith("Running on "):
            simulations.append({})
        named = _NAMED.match(text) if logger == "cocotb.regression" else None
        shut = _SHUT.match(text) if logger == "cocotb.scheduler" else None
        if simulations and found < _MAX_FAILURES and named:
            # 1.9 logs the exception with this record, 2.0 with the one before it.
            own = _after_traceback(lines) or _after_traceback(before)
            simulations[-1][named[1]] = _failure(own, named[2] or "")
            found += 1
        elif simulations and shut:
            simulations[-1][""] = Failure(message=shut[1])
        before = lines
    return tuple(simulations)


def _records(log: str) -> Iterator[tuple[str, str, list[str]]]:
    """Log records: the logger, the text of the first line, and all lines unchanged."""
    logger, text = "", ""
    lines: list[str] = []
    for line in _COLOR.sub("", log).split("\n", _MAX_LINES)[:_MAX_LINES]:
        line = line[:_MAX_WIDTH].rstrip()
        match = _RECORD.match(line)
        if match:
            if logger:
                yield logger, text, lines
            logger, text, lines = match[1], match[2], [line]
        elif line.startswith(_INDENT) and len(lines) < _MAX_DETAILS:
            lines.append(line)
    if logger:
        yield logger, text, lines


def _after_traceback(lines: Sequence[str]) -> list[str]:
    """The lines of the last traceback in a record, without the log's margin."""
    starts = [index for index, line in enumerate(lines) if _TRACEBACK in line]
    if not starts:
        return []
    margin = lines[starts[-1]].index(_TRACEBACK)
    return [line[margin:] for line in lines[starts[-1] + 1 :]]


def _failure(lines: Sequence[str], said: str) -> Failure:
    """The harness's innermost frame in a traceback, and what was raised."""
    file, source, end = "", "", 0
    number = None
    for index, line in enumerate(lines):
        frame = _FRAME.match(line)
        if frame is None:
            continue
        end = index + 1
        if not _LIBRARY.search(frame[1]):
            file, number = shown_path(frame[1]), int(frame[2])
            source = lines[index + 1].strip() if index + 1 < len(lines) else ""
    raised = _raised(lines[end:])
    if raised and ":" not in raised[0] and source.startswith("assert "):
        raised[0] += f": {source}"
    return Failure(message="\n".join(raised) or said, file=file, line=number)


def _raised(lines: Sequence[str]) -> list[str]:
    """The exception's first lines: what follows the last frame and its source."""
    for index, line in enumerate(lines):
        match = _RAISED.match(line)
        if match and not _MARKS.match(line):
            kind = match[1].rpartition(".")[2]
            first = f"{kind}: {match[2]}" if match[2] else kind
            more = lines[index + 1 : index + _MESSAGE_LINES]
            return [first, *(text.rstrip() for text in more if text.strip())]
    return []
