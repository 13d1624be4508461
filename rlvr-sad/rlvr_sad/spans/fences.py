"""A thought, then one command: in a fenced block (SWE-agent, mini-swe-agent).

SWE-agent's rule for `thought_action`: the last block that lies in no other one is the command;
all else is the thought.
"""

from __future__ import annotations

import re

from attrs import frozen

from rlvr_sad.spans.markers import cut
from rlvr_sad.trajectory import SpanType
from rlvr_sad.trajectory_builder import Piece

_FENCE = re.compile(r"^```(?P<language>[^\s`]*)[ \t]*\r?$\n?", re.MULTILINE)
_SHELL = frozenset({"", "bash", "sh", "shell", "console", "terminal", "zsh", "powershell"})


@frozen
class Block:
    """A fenced block: `start` to `end` with its fences."""

    start: int
    end: int
    language: str

    @property
    def is_command(self) -> bool:
        """True where its language is a shell's, or mini-swe-agent's own mark."""
        return self.language in _SHELL or self.language.startswith("mswea_")


def blocks(text: str) -> list[Block]:
    """The outermost blocks; one that is never closed is none."""
    found: list[Block] = []
    if "```" not in text:  # sooner found out than by the pattern
        return found
    opened: list[re.Match[str]] = []
    for fence in _FENCE.finditer(text):
        if fence["language"] or not opened:
            opened.append(fence)
            continue
        first = opened.pop()
        if not opened:
            found.append(Block(first.start(), fence.end(), first["language"].lower()))
    return found


def ends_with_command(text: str) -> bool:
    """True where a message is prose and ends with a block for a shell."""
    found = blocks(text)
    return bool(found) and found[-1].is_command and not text[found[-1].end :].strip()


def split(text: str) -> list[Piece]:
    """The last outermost block is the action, what surrounds it reasoning."""
    found = blocks(text)
    acts: list[tuple[int, SpanType]] = []
    if found:
        acts = [(found[-1].start, "action"), (found[-1].end, "reasoning")]
    return cut(text, [(0, "reasoning"), *acts])
