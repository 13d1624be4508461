"""Splits one message of the model into thoughts, actions and replies."""

from __future__ import annotations

from typing import Literal

from rlvr_sad.spans import fences, markers, tags
from rlvr_sad.trajectory_builder import Piece

Style = Literal["tags", "react", "fence", "reply"]

_ACTS = frozenset({"action", "act", "final answer"})


def style_of(text: str) -> Style:
    """How a message of the model marks what it does."""
    if tags.is_tagged(text):
        return "tags"
    words = {mark.word for mark in markers.marks_of(text)}
    if words & _ACTS or ("answer" in words and words & {"thought", "thoughts"}):
        return "react"
    return "fence" if fences.ends_with_command(text) else "reply"


def split_message(text: str, *, is_call_beside: bool, is_fenced: bool = False) -> list[Piece]:
    """
    Pieces of a message that the model wrote.

    Args:
        text: Its text.
        is_call_beside: It calls a tool besides: what it says is then why.
        is_fenced: The conversation acts through fenced blocks.
    """
    if not text.strip():
        return [Piece("other", text)]
    style = style_of(text)
    if style == "tags":
        return tags.split(text)
    if style == "react":
        return _react(text)
    if is_call_beside:
        return [Piece("reasoning", text)]
    if is_fenced and fences.blocks(text):
        return fences.split(text)
    words = {mark.word for mark in markers.marks_of(text)}
    is_thought = bool(words & {"thought", "thoughts"})
    return [Piece("reasoning" if is_thought else "action", text)]


def _react(text: str) -> list[Piece]:
    """Markers within a message: its own words before the first are reasoning too."""
    pieces = markers.split(text)
    if pieces[0].type == "other":
        pieces[0] = Piece("reasoning", pieces[0].text)
    return pieces
