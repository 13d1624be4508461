"""gpt-oss's Harmony: `<|start|>assistant<|channel|>analysis<|message|>...<|end|>`.

Channels (openai/harmony, docs/format.md): `analysis` is the chain of thought, `commentary` what is
said between calls, `final` the answer. A message with a recipient (`to=functions.x`) is a call in
any channel. A message by anyone but system, developer, user and assistant is a tool's.
"""

from __future__ import annotations

import re

from rlvr_sad.spans.roles import MODEL, SYSTEM, TOOL, USER
from rlvr_sad.trajectory import SpanType
from rlvr_sad.trajectory_builder import Piece

_START = "<|start|>"
_MESSAGE = "<|message|>"
_END = re.compile(r"<\|(?:end|call|return)\|>")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"[ \t]*\bto=([^\s<]+)")
_OURS = {"system": SYSTEM, "developer": SYSTEM, "user": USER, "assistant": MODEL}


def is_harmony(text: str) -> bool:
    """True where a message of the format begins."""
    return _MESSAGE in text and (_START in text or "<|channel|>" in text)


def split(text: str) -> list[Piece]:
    """Headers and control tokens are `other`, but for whom a call is made to: that is action."""
    pieces: list[Piece] = []
    at = 0
    while at < len(text):
        start = text.find(_START, at)
        begins = start == at or (not pieces and text.lstrip().startswith("<|channel|>"))
        if not begins:
            stop = len(text) if start < 0 else start
            pieces.append(Piece("other", text[at:stop], "template"))
            at = stop
            continue
        at = _message(text, at, pieces)
    return pieces


def _message(text: str, at: int, pieces: list[Piece]) -> int:
    """One message from its header to its last control token; gives the place after it."""
    body = text.find(_MESSAGE, at)
    following = text.find(_START, at + 1)
    if body < 0 or 0 <= following < body:  # a header alone: a prompt that awaits the model
        stop = following if following >= 0 else len(text)
        pieces.append(Piece("other", text[at:stop], "template"))
        return stop
    header = text[at : body + len(_MESSAGE)]
    end = _END.search(text, body + len(_MESSAGE))
    stop = end.start() if end else len(text)
    role, kind, recipient = _read_header(header)
    if kind == "action" and recipient is not None:
        pieces += [
            Piece("other", header[: recipient.start()], "template"),
            Piece("action", recipient.group(), role),
            Piece("other", header[recipient.end() :], "template"),
        ]
    else:
        pieces.append(Piece("other", header, "template"))
    pieces.append(Piece(kind, text[body + len(_MESSAGE) : stop], role))
    if end:
        pieces.append(Piece("other", end.group(), "template"))
        return end.end()
    return len(text)


def _read_header(header: str) -> tuple[str, SpanType, re.Match[str] | None]:
    author = re.match(r"(?:<\|start\|>)?\s*([^\s<]*)", header)
    name = author[1] if author else ""
    role = _OURS.get(name, TOOL) if name else MODEL
    if role != MODEL:
        return role, "observation" if role == TOOL else "other", None
    recipient = _RECIPIENT.search(header)
    channel = _CHANNEL.search(header)
    if recipient is not None and recipient[1] not in ("user", "all", "assistant"):
        return role, "action", recipient
    return role, "reasoning" if channel and channel[1] == "analysis" else "action", None
