"""ALFWorld's transcripts: `> think: ...` and `> act` lines, between them what the game says.

The style of the prompts of ReAct (arXiv:2210.03629) and of the logs of Reflexion
(arXiv:2303.11366): a line that begins with `>` is the agent's, every other line after it the
game's, also the `OK.` that answers a thought.
"""

from __future__ import annotations

import re
from itertools import pairwise

from rlvr_sad.spans.markers import cut
from rlvr_sad.trajectory import SpanType
from rlvr_sad.trajectory_builder import Piece

_LINE = re.compile(r"^>(?!>)[ \t]*(?P<think>think(?:ing)?\s*:)?.*(?:\n|\Z)", re.MULTILINE | re.I)


def is_shell(text: str) -> bool:
    """True where a line thinks, or at least two lines act and the game answers each."""
    lines = list(_LINE.finditer(text))
    if any(line["think"] for line in lines):
        return True
    is_answered = all(text[a.end() : b.start()].strip() for a, b in pairwise(lines))
    return len(lines) > 1 and is_answered and "```" not in text and lines[0].start() > 0


def split(text: str) -> list[Piece]:
    """Thoughts, acts, and the lines between them."""
    starts: list[tuple[int, SpanType]] = []
    for line in _LINE.finditer(text):
        starts.append((line.start(), "reasoning" if line["think"] else "action"))
        starts.append((line.end(), "observation"))
    return cut(text, starts)
