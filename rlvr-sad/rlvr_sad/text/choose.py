"""Which style a text is written in: found by its marks, the most telling ones first."""

from __future__ import annotations

from rlvr_sad.draft import Draft, Piece, one_text
from rlvr_sad.text import chatml, fences, flattened, harmony, joined, markers, shell, tags

UNMARKED = "no marks: taken as one thought of the agent"
"""Said of a text that nothing tells apart."""

GUESSED = frozenset({"unmarked", "thought-fence", "joined"})
"""Styles that plain prose can have too: believed only where a text is known to be an agent's."""


def read_text(text: str) -> Draft:
    """One text as one trajectory, with the style that was found as its format."""
    if harmony.is_harmony(text):
        return one_text(harmony.split(text), "harmony")
    if chatml.is_chatml(text):
        return one_text(chatml.split(text), _chatml_name(text))
    if markers.is_numbered(text):
        return one_text(markers.split(text), "react-numbered")
    if markers.is_question(text):
        return one_text([Piece("other", text, "user")], "react-plain")
    if flattened.is_flattened(text):
        notes = [flattened.DROPPED] if flattened.has_dropped_calls(text) else []
        return one_text(flattened.split(text), "flattened", *notes)
    if joined.is_joined(text) and joined.is_joined(tags.outside(text)):
        return one_text(joined.split(text), "joined", joined.NOTE)
    if tags.is_tagged(text):
        return one_text(tags.split(text, is_prompted=True), _tags_name(text))
    if markers.is_plain(text):
        return one_text(markers.split(text), "react-plain")
    if shell.is_shell(text):
        return one_text(shell.split(text), "react-alfworld")
    if fences.blocks(text):
        return one_text(fences.split(text), "thought-fence")
    return one_text([Piece("reasoning", text)], "unmarked", UNMARKED)


def _chatml_name(text: str) -> str:
    if "<tool_call>" in text or "<tool_response>" in text or "<scratch_pad>" in text:
        return "hermes"
    return "search-tags" if "<search>" in text else "chatml"


def _tags_name(text: str) -> str:
    if "<command>" in text or "<function=" in text:
        return "thought-xml"
    return "hermes" if "<tool_call>" in text else "search-tags" if "<search>" in text else "tags"
