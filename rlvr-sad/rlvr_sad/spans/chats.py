"""
Chats written out as one text: with the control tokens of a template, or as `role: text` lines.

Templates: `<|im_start|>role ... <|im_end|>`, and Llama 3's headers. Lines: tau-bench's few-shot
transcripts, `user: ...`, `assistant: ...`, `tool: ...`; a message goes on until the next line that
names a role, and a turn of the model that reads `None` stood for a call that was not written down.
"""

from __future__ import annotations

import re

from rlvr_sad.spans import tags
from rlvr_sad.spans.content import split_message
from rlvr_sad.spans.roles import MODEL, TOOL, USER, role_of
from rlvr_sad.trajectory_builder import Piece

_START = re.compile(
    r"<\|im_start\|>[ \t]*([\w.-]+)[^\n]*\n?"
    r"|<\|start_header_id\|>[ \t]*([\w.-]+)[ \t]*<\|end_header_id\|>\n*"
)
_END = re.compile(r"<\|im_end\|>|<\|eot_id\|>|<\|eom_id\|>|<\|endoftext\|>|<\|end_of_text\|>")
_LABEL = re.compile(
    r"^(system|user|human|customer|assistant|agent|ai|gpt|tool|function|observation"
    r"|environment)[ \t]*:[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)
DROPPED = "calls that were not written down (`assistant: None`) cannot be learnt"


def is_chatml(text: str) -> bool:
    """True where a message is opened by control tokens."""
    return _START.search(text) is not None


def is_flattened(text: str) -> bool:
    """True where the text begins with a role, and both the model and someone else speak."""
    if _LABEL.match(text.lstrip()) is None:
        return False
    roles = {role_of(m[1]) for m in _LABEL.finditer(text)}
    return MODEL in roles and bool(roles & {USER, TOOL})


def has_dropped_calls(text: str) -> bool:
    """True where a call of the model is missing in lines."""
    return re.search(r"^(?:assistant|agent)[ \t]*:[ \t]*None[ \t]*$", text, re.M | re.I) is not None


def split(text: str) -> list[Piece]:
    """Control tokens and labels are `other`; each message by its role and its own marks."""
    is_template = is_chatml(text)
    starts = list((_START if is_template else _LABEL).finditer(text))
    stops = [*(start.start() for start in starts[1:]), len(text)]
    # before the first: the end of a message, or nobody's words
    pieces = [Piece("other", text[: starts[0].start()], USER)]
    for start, stop in zip(starts, stops, strict=True):
        end = _END.search(text, start.end(), stop) if is_template else None
        content_end = end.start() if end else stop
        role = role_of(next(filter(None, start.groups())))
        pieces.append(Piece("other", start.group(), "template"))
        pieces += _content(text[start.end() : content_end], role, is_template)
        pieces.append(Piece("other", text[content_end:stop], "template"))
    return [piece for piece in pieces if piece.text]


def _content(text: str, role: str | None, is_template: bool) -> list[Piece]:
    if role == MODEL:
        if not is_template and text.strip() in ("None", "null"):
            return [Piece("other", text, "template")]
        return split_message(text, is_call_beside=False)
    is_answer = is_template and role == USER and tags.observes(text) and not tags.is_tagged(text)
    if role == TOOL or is_answer:
        return [Piece("observation", text, TOOL)]
    return [Piece("other", text, role or USER)]
