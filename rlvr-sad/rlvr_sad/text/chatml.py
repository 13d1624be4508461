"""Chat templates written out: `<|im_start|>role ... <|im_end|>`, and Llama 3's headers."""

from __future__ import annotations

import re

from rlvr_sad.draft import Piece
from rlvr_sad.text import tags
from rlvr_sad.text.content import split_message
from rlvr_sad.text.roles import MODEL, TOOL, role_of

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
    pieces: list[Piece] = []
    starts = list(_START.finditer(text))
    if starts and starts[0].start() > 0:
        pieces += _before(text[: starts[0].start()])
    for index, start in enumerate(starts):
        stop = starts[index + 1].start() if index + 1 < len(starts) else len(text)
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
    if role == TOOL or (role == "user" and tags.observes(text) and not tags.is_tagged(text)):
        return [Piece("observation", text, TOOL)]
    return [Piece("other", text, role or "user")]


def _before(text: str) -> list[Piece]:
    """What stands before the first opened message: the end of one, or nobody's words."""
    return [Piece("other", text, "user")]
