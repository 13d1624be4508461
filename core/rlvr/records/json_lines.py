"""Read the JSON Lines of a run directory: a damaged line is named and left out, no other."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

_NAMED = 3
"""Damaged lines of a file that are named one by one; the others are counted."""
_LARGE = 2**53


@frozen
class Lines:
    """
    The objects of a file.

    Attributes:
        records: Those that could be read, in order.
        damage: What is wrong with the other lines, or with the file.
        incomplete: Which of the records lack a field.
    """

    records: list[dict[str, Any]] = field(factory=list)
    damage: list[str] = field(factory=list)
    incomplete: list[str] = field(factory=list)

    def named(self, path: Path) -> list[dict[str, Any]]:
        """The records; what is left out or incomplete is said on standard error."""
        for reasons, end in ((self.damage, "left out"), (self.incomplete, "read without it")):
            for reason in reasons[:_NAMED]:
                print(f"rlvr: {path}: {reason}; it is {end}", file=sys.stderr)
            if (more := len(reasons) - _NAMED) > 0:
                print(f"rlvr: {path}: {more} more lines are {end}", file=sys.stderr)
        return self.records


def read_lines(path: Path, is_whole: bool = False) -> Lines:
    """
    Read `metrics.jsonl`, `eval.jsonl`, `trace.jsonl`, `opinions.jsonl` or a trajectories file.

    Args:
        path: A file that may be missing, or damaged in any way.
        is_whole: Whether a line has to hold all of its fields, and not only of the right types.
    """
    found = Lines()
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
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        record, fault = parsed(line)
        if not fault:
            fault = _fault(record, fields)
        lacks = "" if fault else _lacks(record, fields)
        if fault or (lacks and (is_whole or lacks == "step")):
            fault = fault or f'has no "{lacks}"'
            found.damage.append(f"line {number} {fault}")
            continue
        found.records.append(record)
        if lacks:
            found.incomplete.append(f'line {number} has no "{lacks}"')
    return found


def parsed(line: bytes) -> tuple[dict[str, Any], str]:
    """The object of a line, and what is wrong with it ("" where nothing is)."""
    try:
        record: Any = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return {}, f"is not UTF-8 (byte {error.start + 1})"
    except json.JSONDecodeError as error:
        return {}, f"is no JSON object: {error.msg} (column {error.colno})"
    except (ValueError, RecursionError) as error:  # a number of too many digits; nested too deep
        return {}, f"is no JSON object: {error}"
    return (record, "") if isinstance(record, dict) else ({}, "is no JSON object")


def is_step(value: object) -> bool:
    """Whether a value can be the number of a step."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGE


def is_number(value: object) -> bool:
    """Whether a value can be a figure; NaN and infinities can."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < 10**300


def _numbers(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_number, value.values()))


def _passes(value: object) -> bool:
    return isinstance(value, dict) and _numbers(value) and all(k.isdecimal() for k in value)


def _scores(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(scores, list) and all(map(is_number, scores)) for scores in value.values()
    )


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _is_figure_or_none(value: object) -> bool:
    return value is None or (is_number(value) and math.isfinite(float(value)))  # type: ignore[arg-type]


def _is_flag(value: object) -> bool:
    return value is None or isinstance(value, bool)


_Fields = Mapping[str, tuple[Callable[[object], bool], bool]]
"""Of each field: whether a value can be its value, and whether a whole line has it."""

_SPAN: _Fields = {
    **dict.fromkeys(("name", "lane"), (_is_text, True)),
    **dict.fromkeys(("begin_s", "end_s"), (_is_figure_or_none, True)),
    "step": (is_step, True),
}
_EVALUATION: _Fields = {
    "step": (is_step, True),
    "split": (_is_text, True),
    **dict.fromkeys(("low", "high", "reward_mean", "seconds"), (is_number, True)),
    **dict.fromkeys(("samples", "failed", "problems"), (is_step, True)),
    "pass1": (_is_figure_or_none, True),
    "pass_at": (_passes, True),
    "scores": (_scores, True),
    "held_out": (_is_flag, False),
    "seen": (_texts, False),
    "measures": (_numbers, False),
}
_TRAJECTORY: _Fields = {
    **dict.fromkeys(("step", "index"), (is_step, True)),
    "id": (_is_text, True),
    "outcome": (_is_object, True),
}
_FIELDS: Mapping[str, _Fields] = {
    "metrics.jsonl": {"step": (is_step, True), "": (is_number, False)},
    "eval.jsonl": _EVALUATION,
    "opinions.jsonl": {
        "step": (is_step, True),
        "opinion": (_is_text, True),
        "id": (_is_text, False),
        "trajectory": (_is_text, False),
        "seconds": (is_number, False),
        "arrived": (is_step, False),
    },
    "trace.jsonl": _SPAN,
    "trajectories": _TRAJECTORY,
}


def _lacks(record: Mapping[str, Any], fields: _Fields) -> str:
    needed = [name for name, (_, is_needed) in fields.items() if is_needed]
    missing = [name for name in needed if name not in record]
    return "step" if "step" in missing else next(iter(missing), "")


def _fault(record: Mapping[str, Any], fields: _Fields) -> str:
    for name, value in record.items():
        fits = fields.get(name, fields.get(""))
        if fits is not None and not fits[0](value):
            return f'has {_short(value)} as "{name}"'
    return ""


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:60] + "..."
