"""XML-like tags: `<think>`, `<search>`, `<tool_call>`, `<information>`.

Search-R1 (arXiv:2503.09516), Hermes function calling, Qwen, verifiers' `XMLParser`, SWE-agent's
`<command>` and `<function=name>`. Text outside of tags is reasoning where an action follows it in
the same text, else the reply.
"""

from __future__ import annotations

import re

from attrs import frozen

from rlvr_sad.spans.markers import cut
from rlvr_sad.trajectory import SpanType
from rlvr_sad.trajectory_builder import Piece

REASONING = (
    *("think", "thinking", "thought", "thoughts", "reasoning", "reason", "rationale"),
    *("scratch_pad", "scratchpad", "reflection", "inner_monologue"),
)
ACTIONS = (
    *("search", "answer", "final_answer", "guess", "tool_call", "tool_calls", "function_call"),
    *("function_calls", "functioncall", "invoke", "action", "command", "execute", "execute_bash"),
    *("execute_ipython", "execute_browse"),
)
OBSERVATIONS = (
    *("information", "tool_response", "tool_responses", "observation", "observations"),
    *("tool_result", "tool_results", "function_results", "function_response", "search_results"),
    *("returncode", "tool_output", "execution_result", "execution_results", "interpreter"),
)
_AT_LINE_START: dict[str, SpanType] = {
    **dict.fromkeys(("code", "tool", "query", "call", "python", "move"), "action"),
    **dict.fromkeys(("plan", "analysis"), "reasoning"),
    **dict.fromkeys(("result", "results", "output", "documents"), "observation"),
}
"""Words that prose and HTML use too: a tag only where a line begins with it."""
_TYPES: dict[str, SpanType] = {
    **dict.fromkeys(REASONING, "reasoning"),
    **dict.fromkeys(ACTIONS, "action"),
    **dict.fromkeys(OBSERVATIONS, "observation"),
}
_KINDS: dict[str, SpanType] = {**_TYPES, **_AT_LINE_START, "function": "action"}
_STRONG = "|".join(sorted(_TYPES, key=len, reverse=True))
_WEAK = "|".join(sorted(_AT_LINE_START, key=len, reverse=True))
_TAG = re.compile(
    rf"<(?P<close>/)?(?P<name>{_STRONG})(?:\s[^<>]*)?>"
    r"|<function=(?P<function>[^<>]+)>"
    rf"|(?P<weak>^[ \t]*<(?P<weakname>{_WEAK})(?:\s[^<>]*)?>)",
    re.IGNORECASE | re.MULTILINE,
)


@frozen
class _Block:
    start: int
    end: int
    type: SpanType


def is_tagged(text: str) -> bool:
    """True where a reasoning or an action tag is opened and closed, or a stray one closes."""
    return any(block.type != "observation" for block in _blocks(text))


def observes(text: str) -> bool:
    """True where a message from outside is a tagged observation."""
    return any(block.type == "observation" for block in _blocks(text))


def outside(text: str) -> str:
    """The text without what stands in tags that were opened."""
    kept, at = [], 0
    for block in _blocks(text):
        opening = _TAG.match(text, block.start)
        if opening is not None and not opening["close"]:
            kept.append(text[at : block.start])
            at = block.end
    return "".join([*kept, text[at:]])


def split(text: str, *, is_prompted: bool = False) -> list[Piece]:
    """
    Tags by their type; text between them by what follows it.

    Args:
        text: What to cut.
        is_prompted: The text may begin with a prompt: what stands before a first reasoning tag is
            then `other` (a model that thinks in tags begins with one).
    """
    starts: list[tuple[int, SpanType]] = []
    blocks = _blocks(text)
    at = 0
    last_action = max((b.start for b in blocks if b.type == "action"), default=-1)
    for block in blocks:
        kind = _between(text[at : block.start], last_action >= block.start)
        if is_prompted and block is blocks[0] and block.type == "reasoning":
            kind = "other"
        starts += [(at, kind), (block.start, block.type)]
        at = block.end
    return cut(text, [*starts, (at, _between(text[at:], False))])


def _between(text: str, is_action_ahead: bool) -> SpanType:
    if not text.strip():
        return "other"
    return "reasoning" if is_action_ahead else "action"


def _blocks(text: str) -> list[_Block]:
    """Outermost tags with their contents; an open one ends where the next begins, or the text."""
    blocks: list[_Block] = []
    if "<" not in text:  # sooner found out than by the pattern
        return blocks
    unclosed: set[str] = set()  # names that close nowhere further on: not looked for again
    at = 0
    while (tag := _TAG.search(text, at)) is not None:
        start = tag.start()
        if tag["close"]:  # closed and never opened: a template opened it, or the model forgot
            kind = _TYPES[tag["name"].lower()]
            before = blocks[-1].end if blocks else 0
            if kind == "reasoning":
                blocks.append(_Block(before, tag.end(), kind))
            at = tag.end()
            continue
        name = (tag["name"] or tag["weakname"] or "function").lower()
        kind = _KINDS[name]
        if tag["weak"] is not None:
            start += len(tag["weak"]) - len(tag["weak"].lstrip())
        close = None
        if name not in unclosed:
            closing = re.compile(rf"</{re.escape(name)}\s*>", re.IGNORECASE)
            close = closing.search(text, tag.end())
        if close is None:
            unclosed.add(name)
        if close is not None:
            end = close.end()
        elif tag["weak"] is not None:  # an ordinary word in angle brackets
            at = tag.end()
            continue
        else:
            end = _next_opening(text, tag.end(), name)
        blocks.append(_Block(start, end, kind))
        at = end
    return blocks


def _next_opening(text: str, at: int, name: str) -> int:
    """Where another tag opens that begins a line; the end of the text where none does."""
    for tag in _TAG.finditer(text, at):
        before = text[text.rfind("\n", 0, tag.start()) + 1 : tag.start()]
        if not tag["close"] and (tag["name"] or "").lower() != name and not before.strip():
            return tag.start()
    return len(text)
