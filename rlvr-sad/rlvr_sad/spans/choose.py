"""Finds the style of a text by its marks, the clearest ones first."""

from __future__ import annotations

from rlvr_sad.spans import chats, fences, harmony, joined, markers, shell, tags
from rlvr_sad.trajectory_builder import Piece, TrajectoryBuilder

UNMARKED = "no marks: taken as one thought of the agent"
"""Said of a text that nothing tells apart."""

GUESSED = frozenset({"unmarked", "thought-fence", "joined"})
"""Styles that plain prose can have too: believed only where a text is known to be an agent's."""


def read_text(text: str) -> TrajectoryBuilder:
    """One text as one trajectory, with the style that was found as its format."""
    style, pieces, *notes = _style(text)
    draft = TrajectoryBuilder(format=style, notes=notes)
    draft.extend(pieces)
    return draft


def _style(text: str) -> tuple[str, list[Piece], *tuple[str, ...]]:
    """Name of the style, pieces of the text, and notes."""
    if harmony.is_harmony(text):
        return "harmony", harmony.split(text)
    if chats.is_chatml(text):
        return _chatml_name(text), chats.split(text)
    if markers.is_numbered(text):
        return "react-numbered", markers.split(text)
    if markers.is_question(text):
        return "react-plain", [Piece("other", text, "user")]
    if chats.is_flattened(text):
        notes = [chats.DROPPED] if chats.has_dropped_calls(text) else []
        return "flattened", chats.split(text), *notes
    if joined.is_joined(text) and joined.is_joined(tags.outside(text)):
        return "joined", joined.split(text), joined.NOTE
    if tags.is_tagged(text):
        return _tags_name(text), tags.split(text, is_prompted=True)
    if markers.is_plain(text):
        return "react-plain", markers.split(text)
    if shell.is_shell(text):
        return "react-alfworld", shell.split(text)
    if fences.blocks(text):
        return "thought-fence", fences.split(text)
    return "unmarked", [Piece("reasoning", text)], UNMARKED


def _chatml_name(text: str) -> str:
    if "<tool_call>" in text or "<tool_response>" in text or "<scratch_pad>" in text:
        return "hermes"
    return "search-tags" if "<search>" in text else "chatml"


def _tags_name(text: str) -> str:
    if "<command>" in text or "<function=" in text:
        return "thought-xml"
    return "hermes" if "<tool_call>" in text else "search-tags" if "<search>" in text else "tags"
