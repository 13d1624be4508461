"""Chat templates written out: `<|im_start|>role ... <|im_end|>`, and Llama 3's headers."""

from __future__ import annotations

import re

from rlvr_sad.spans import tags
from rlvr_sad.spans.content import split_message
from rlvr_sad.spans.roles import MODEL, TOOL, USER, role_of
from rlvr_sad.trajectory_builder import Piece

_START = re.compile(
    r"<\|im_start\|>[ \t]*(?P<chatml>[\w.-]+)[^\n]*\n?"
    r"|<\|start_header_id\|>[ \t]*(?P<llama>[\w.-]+)[ \t]*<\|end_header_id\|>\n*"
)
_END = re.compile(r"<\|im_end\|>|<\|eot_id\|>|<\|eom_id\|>|<\|endoftext\|>|<\|end_of_text\|>")


def is_chatml(text: str) -> bool:
    """True where a message is opened."""
    return _START.search(text) is not None


def split(text: str) -> list[Piece]:
    """Control tokens are `other`; each message by its role and its own marks."""
    starts = list(_START.finditer(text))
    stops = [*(start.start() for start in starts[1:]), len(text)]
    before = text[: starts[0].start()]  # the end of a message, or nobody's words
    pieces = [Piece("other", before, USER)] if before else []
    for start, stop in zip(starts, stops, strict=True):
        end = _END.search(text, start.end(), stop)
        content_end = end.start() if end else stop
        role = role_of((start["chatml"] or start["llama"]).lower())
        pieces.append(Piece("other", start.group(), "template"))
        pieces += _content(text[start.end() : content_end], role)
        if content_end < stop:
            pieces.append(Piece("other", text[content_end:stop], "template"))
    return pieces


def _content(text: str, role: str | None) -> list[Piece]:
    if role == MODEL:
        return split_message(text, is_call_beside=False)
    if role == TOOL or (role == USER and tags.observes(text) and not tags.is_tagged(text)):
        return [Piece("observation", text, TOOL)]
    return [Piece("other", text, role or USER)]
