"""Texts of several authors joined without marks, given away by calls written as bare JSON.

Who wrote the lines between the calls cannot be told: they are `other`, so that nothing of the
environment is learnt. The native record says more than such a text.
"""

from __future__ import annotations

import json
import re

from rlvr_sad.spans.markers import cut
from rlvr_sad.trajectory import SpanType
from rlvr_sad.trajectory_builder import Piece

NOTE = (
    "authors cannot be told apart in this text: only its calls are labelled; read the native file"
)
_LINE = re.compile(r"^\{.*\}[ \t]*$", re.MULTILINE)


def is_joined(text: str) -> bool:
    """True where a line is a call in JSON, with a name and arguments."""
    return any(_is_call(line.group()) for line in _LINE.finditer(text))


def split(text: str) -> list[Piece]:
    """Calls are actions, a line of JSON right after one is what came back, the rest `other`."""
    starts: list[tuple[int, SpanType]] = []
    at = 0
    kind: SpanType = "other"
    for line in text.splitlines(keepends=True):
        if _is_call(line):
            kind = "action"
        elif kind in ("action", "observation") and line.lstrip()[:1] in ("{", "["):
            kind = "observation"
        else:
            kind = "other"
        starts.append((at, kind))
        at += len(line)
    return cut(text, starts)


def _is_call(line: str) -> bool:
    if not line.startswith("{") or '"name"' not in line or '"arguments"' not in line:
        return False
    try:
        value = json.loads(line)
    except ValueError:
        return False
    return isinstance(value, dict) and isinstance(value.get("name"), str)
