"""A chat written out as lines: `user: ...`, `assistant: ...`, `tool: ...`.

tau-bench's few-shot transcripts. A message goes on until the next line that names a role. A turn
of the model that reads `None` stood for a call that was not written down.
"""

from __future__ import annotations

import re

from rlvr_sad.spans.content import split_message
from rlvr_sad.spans.roles import MODEL, TOOL, USER, role_of
from rlvr_sad.trajectory_builder import Piece

_LABEL = re.compile(
    r"^(?P<role>system|user|human|customer|assistant|agent|ai|gpt|tool|function|observation"
    r"|environment)[ \t]*:[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)
DROPPED = "calls that were not written down (`assistant: None`) cannot be learnt"


def is_flattened(text: str) -> bool:
    """True where the text begins with a role, and both the model and someone else speak."""
    first = _LABEL.match(text.lstrip())
    if first is None:
        return False
    roles = {role_of(m["role"]) for m in _LABEL.finditer(text)}
    return MODEL in roles and bool(roles & {USER, TOOL})


def split(text: str) -> list[Piece]:
    """The label is the template's; what follows is its author's."""
    labels = list(_LABEL.finditer(text))
    stops = [*(label.start() for label in labels[1:]), len(text)]
    pieces = [Piece("other", text[: labels[0].start()], USER)]
    for label, stop in zip(labels, stops, strict=True):
        pieces.append(Piece("other", label.group(), "template"))
        pieces += _content(text[label.end() : stop], role_of(label["role"]))
    return [piece for piece in pieces if piece.text]


def has_dropped_calls(text: str) -> bool:
    """True where a call of the model is missing."""
    return re.search(r"^(?:assistant|agent)[ \t]*:[ \t]*None[ \t]*$", text, re.M | re.I) is not None


def _content(text: str, role: str | None) -> list[Piece]:
    if role == MODEL:
        if text.strip() in ("None", "null"):
            return [Piece("other", text, "template")]
        return split_message(text, is_call_beside=False)
    return [Piece("observation" if role == TOOL else "other", text, role or USER)]
