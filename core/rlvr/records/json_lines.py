"""Read JSON files of a run directory: damaged lines are named and left out, the others kept."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from rlvr.heartbeat import say

_NAMED = 3
"""Damaged lines that are named one by one, for each file; further ones are counted."""
_LARGE = 2**53


@frozen
class Lines:
    """
    The objects of a file.

    Attributes:
        path: The file.
        records: Objects that could be read, in order.
        damage: What is wrong with the other lines, or with the file.
        incomplete: Which of the records lack a field.
    """

    path: Path
    records: list[dict[str, Any]] = field(factory=list)
    damage: list[str] = field(factory=list)
    incomplete: list[str] = field(factory=list)

    def named(self) -> list[dict[str, Any]]:
        """The records; standard error names what is left out or incomplete."""
        for reasons, end in ((self.damage, "left out"), (self.incomplete, "read without it")):
            for reason in reasons[:_NAMED]:
                say(f"rlvr: {self.path}: {reason}; it is {end}")
            if (more := len(reasons) - _NAMED) > 0:
                say(f"rlvr: {self.path}: {more} more lines are {end}")
        return self.records


def read_lines(path: Path, is_whole: bool = False) -> Lines:
    """
    Read `metrics.jsonl`, `eval.jsonl`, `trace.jsonl`, `opinions.jsonl` or a trajectories file.

    Args:
        path: A file that may be missing, or damaged in any way.
        is_whole: Whether a line has to hold all of its fields, and not only of the right types.
    """
    found = Lines(path)
    if not path.is_file():
        if path.exists():
            found.damage.append("it is no file")
        return found
    try:
        content = path.read_bytes()
    except OSError as error:
        found.damage.append(f"it cannot be read: {error.strerror or error}")
        return found
    fields = _FIELDS["trajectories" if path.parent.name == "trajectories" else path.name]
    for number, record, fault in objects(content):
        fault = fault or _fault(record, fields)
        missing = [n for n, (_, is_needed) in fields.items() if is_needed and n not in record]
        lacks = "step" if "step" in missing else next(iter(missing), "")
        if fault or (lacks and (is_whole or lacks == "step")):
            found.damage.append(f"line {number} " + (fault or f'has no "{lacks}"'))
            continue
        found.records.append(record)
        if lacks:
            found.incomplete.append(f'line {number} has no "{lacks}"')
    return found


def objects(content: bytes) -> Iterator[tuple[int, dict[str, Any], str]]:
    """Number and object of each line that is not blank, and what is wrong with it ("": nothing)."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            yield number, *_parsed(line)


def _parsed(line: bytes) -> tuple[dict[str, Any], str]:
    try:
        record: Any = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return {}, f"is not UTF-8 (byte {error.start + 1})"
    except json.JSONDecodeError as error:
        return {}, f"is no JSON object: {error.msg} (column {error.colno})"
    except (ValueError, RecursionError) as error:  # a number of too many digits; nested too deep
        return {}, f"is no JSON object: {error}"
    return (record, "") if isinstance(record, dict) else ({}, "is no JSON object")


def object_in(path: Path) -> dict[str, Any]:
    """
    The JSON object that a file holds.

    Raises:
        OSError, ValueError: It cannot be read, or holds none.
    """
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise ValueError("no file")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(str(error)) from error
    if not isinstance(record, dict):
        raise ValueError("no object")
    return record


_Fits = Callable[[Any], bool]


def _is_step(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGE


def _is_number(value: object) -> bool:
    """NaN and infinities are numbers too; integers that no float can hold are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < 10**300


def _is_finite_or_none(value: Any) -> bool:
    return value is None or (_is_number(value) and math.isfinite(value))


def _is(kind: Any) -> _Fits:
    return lambda value: isinstance(value, kind)


def _list_of(fits: _Fits) -> _Fits:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _object_of(fits: _Fits) -> _Fits:
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


_numbers = _object_of(_is_number)
_Fields = Mapping[str, tuple[_Fits, bool]]
"""Field name to a check of its values, and whether a whole line needs the field."""

_FIELDS: Mapping[str, _Fields] = {
    "metrics.jsonl": {"step": (_is_step, True), "": (_is_number, False)},
    "eval.jsonl": {
        "step": (_is_step, True),
        "split": (_is(str), True),
        **dict.fromkeys(("low", "high", "reward_mean", "seconds"), (_is_number, True)),
        **dict.fromkeys(("samples", "failed", "problems"), (_is_step, True)),
        "pass1": (_is_finite_or_none, True),
        "pass_at": (lambda value: _numbers(value) and all(map(str.isdecimal, value)), True),
        "scores": (_object_of(_list_of(_is_number)), True),
        "held_out": (_is(bool | None), False),
        "seen": (_list_of(_is(str)), False),
        "measures": (_numbers, False),
    },
    "opinions.jsonl": {
        "step": (_is_step, True),
        "opinion": (_is(str), True),
        **dict.fromkeys(("id", "trajectory"), (_is(str), False)),
        "seconds": (_is_number, False),
        "arrived": (_is_step, False),
    },
    "trace.jsonl": {
        **dict.fromkeys(("name", "lane"), (_is(str), True)),
        **dict.fromkeys(("begin_s", "end_s"), (_is_finite_or_none, True)),
        "step": (_is_step, True),
    },
    "trajectories": {
        **dict.fromkeys(("step", "index"), (_is_step, True)),
        "id": (_is(str), True),
        "outcome": (_is(dict), True),
    },
}


def _fault(record: Mapping[str, Any], fields: _Fields) -> str:
    for name, value in record.items():
        fits, _ = fields.get(name, fields.get("", (_is(object), False)))
        if not fits(value):
            text = json.dumps(value)
            return f'has {text if len(text) <= 60 else text[:60] + "..."} as "{name}"'
    return ""
