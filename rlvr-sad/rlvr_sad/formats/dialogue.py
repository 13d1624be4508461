"""A list of messages as a trajectory: who wrote what, and what it is for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rlvr_sad.formats.message import Message, Part, read_message
from rlvr_sad.spans import fences, markers, tags
from rlvr_sad.spans.content import split_message, style_of
from rlvr_sad.spans.roles import MODEL, TOOL, USER
from rlvr_sad.trajectory import Media, SpanType
from rlvr_sad.trajectory_builder import Piece, TrajectoryBuilder

_PLACEHOLDER = re.compile(r"<(image|video|audio)>")


def read_messages(values: Sequence[Any]) -> list[Message]:
    """
    All messages of a list.

    Raises:
        BadRecordError: One cannot be read; the text counts from 1.
    """
    return [read_message(value, number) for number, value in enumerate(values, start=1)]


def fill(
    draft: TrajectoryBuilder, messages: Sequence[Message], media: Sequence[Media] = ()
) -> None:
    """
    Append the messages to a draft.

    Args:
        draft: What to append to.
        messages: In order.
        media: What `<image>`, `<video>` and `<audio>` in the texts stand for, in order.
    """
    is_fenced = acts_through_fences(messages)
    is_answered = answers_as_user(messages, is_fenced)
    waiting = list(media)
    has_acted = False
    for message in messages:
        calls = message.has_calls
        for part in message.parts:
            kind = _type_beyond_text(message, part, is_answered and has_acted)
            if part.media is not None:
                draft.part()
                draft.add(Piece("other", part.text, message.role), part.media)
            elif kind is not None:
                _append(draft, [Piece(kind, part.text, message.role)], waiting)
            else:
                pieces = split_message(part.text, is_call_beside=calls, is_fenced=is_fenced)
                _append(draft, pieces, waiting)
        has_acted = has_acted or message.role == MODEL
    if waiting:
        draft.note(f"{len(waiting)} media files have no placeholder in the text")


def acts_through_fences(messages: Sequence[Message]) -> bool:
    """
    True where every turn of the model that is answered ends with a block for a shell.

    One such turn could be an answer to a person; it takes two, or an answer in the tags of a shell.
    """
    pairs = [
        (a, b)
        for a, b in pairwise(messages)
        if a.role == MODEL and b.role == USER and a.text and not a.has_calls
    ]
    if not pairs or not all(fences.ends_with_command(a.text) for a, _ in pairs):
        return False
    first, answer = pairs[0]
    is_shell = tags.observes(answer.text) or "```mswea_" in first.text
    return len(pairs) > 1 or is_shell


def answers_as_user(messages: Sequence[Message], is_fenced: bool) -> bool:
    """True where the environment speaks as the user: the model acts, and no tool ever speaks."""
    if any(m.role == TOOL or m.has_calls for m in messages):
        return False
    acts = (style_of(m.text) for m in messages if m.role == MODEL and m.text)
    return is_fenced or any(style in ("tags", "react") for style in acts)


def _type_beyond_text(message: Message, part: Part, is_answer: bool) -> SpanType | None:
    """The type that the format states; None for text of the model, whose marks decide."""
    if part.kind in ("reasoning", "call"):
        return "reasoning" if part.kind == "reasoning" else "action"
    if part.kind == "answer" or message.role == TOOL:
        return "observation"
    if message.role == MODEL:
        return "action" if message.is_typed else None
    if message.role == USER:
        opens = markers.marks_of(part.text[:40])
        is_marked = bool(opens) and opens[0].type == "observation" and opens[0].start == 0
        is_tagged = tags.observes(part.text) and not tags.is_tagged(part.text)
        return "observation" if is_answer or is_marked or is_tagged else "other"
    return "other"


def _append(draft: TrajectoryBuilder, pieces: Sequence[Piece], waiting: list[Media]) -> None:
    """A message's pieces; where media wait, their placeholders become segments of their own."""
    if not waiting:
        draft.message(pieces)
        return
    draft.part()
    for piece in pieces:
        at = 0
        for found in _PLACEHOLDER.finditer(piece.text):
            here = next((m for m in waiting if m.kind == found[1]), None)
            if here is None:
                continue
            waiting.remove(here)
            draft.add(Piece(piece.type, piece.text[at : found.start()], piece.role))
            draft.add(Piece("other", found.group(), piece.role), here)
            at = found.end()
        draft.add(Piece(piece.type, piece.text[at:], piece.role))
