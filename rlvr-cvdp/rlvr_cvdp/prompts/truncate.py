"""Cuts a prompt to a budget of tokens: the specification's least important parts go first."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from rlvr import Message
from rlvr_cvdp.paths import HDL
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.prompts.sections import Section, pieces_of

_TOKENS = re.compile(r"([A-Za-z]+)|(\n+|[^\S\n]+)|([\x00-\x7f])|(.)", re.DOTALL)
_LETTERS = 4
_A_MESSAGE = 4
_MARK = 22
"""Most tokens of a mark, up to a million lines."""

REQUEST = "prompt"
"""The request's own name where cut lines are counted by file."""


@functools.lru_cache(8192)  # the same pieces are counted again for each budget that is tried
def estimated_tokens(text: str) -> int:
    """
    Estimated tokens of a text without a model, rather too many than too few.

    A run of letters counts one for each four letters or part of it, a run of blanks or of line
    ends one, each digit and sign one, each character beyond ASCII its bytes.
    """
    count = 0
    for letters, blank, sign, other in _TOKENS.findall(text):
        if letters:
            count += -(-len(letters) // _LETTERS)
        else:
            count += 1 if blank or sign else len(other.encode(errors="replace"))
    return count


def estimated_prompt(messages: Sequence[Message]) -> int:
    """Tokens of a whole prompt; four a message for what a chat template adds."""
    return sum(estimated_tokens(m.content) + _A_MESSAGE for m in messages)


@frozen(kw_only=True)
class Fitted:
    """
    A prompt within its budget, and what was cut for that.

    `notes` is empty where nothing was cut. Else it holds the estimate `before` and `after`, the
    `budget`, `lines` cut by file (the request itself is "prompt"), and `is_over`: what is never
    cut is alone more than the budget.
    """

    messages: tuple[Message, ...]
    notes: Mapping[str, Any]


def fit_prompt(
    problem: CvdpProblem, construct: Callable[[CvdpProblem], tuple[Message, ...]], max_tokens: int
) -> Fitted:
    """
    The prompt of a problem, cut to at most so many estimated tokens; 0 cuts nothing.

    Parts go in this order, each kind from its end: documents and what verifies (`docs/`,
    `verif/`), then examples, tables and prose of the request, then the bodies of given modules,
    last those of the files to write. The interface is never cut: see `sections`.
    """
    whole = construct(problem)
    before = estimated_prompt(whole)
    if not max_tokens or before <= max_tokens:
        return Fitted(messages=whole, notes={})
    shown = "".join(message.content for message in whole)
    texts = {**problem.context, "": problem.prompt}
    texts = {name: text for name, text in texts.items() if text in shown}
    parts = {name: pieces_of(name, text, problem) for name, text in texts.items()}
    gone = _chosen(
        parts, max_tokens - estimated_prompt(_with(problem, construct, dict.fromkeys(parts, "")))
    )
    kept = {name: _joined(name, pieces, gone) for name, pieces in parts.items()}
    messages = _with(problem, construct, kept)
    after = estimated_prompt(messages)
    lines: dict[str, int] = {}
    for name, index in gone:
        source = name or REQUEST
        lines[source] = lines.get(source, 0) + parts[name][index].lines
    notes = {
        "before": before,
        "after": after,
        "budget": max_tokens,
        "lines": lines,
        "is_over": after > max_tokens,
    }
    return Fitted(messages=messages, notes={"prompt_cut": notes})


def _with(
    problem: CvdpProblem,
    construct: Callable[[CvdpProblem], tuple[Message, ...]],
    texts: Mapping[str, str],
) -> tuple[Message, ...]:
    """The prompt with other texts in place of some of the problem's."""
    context = {name: texts.get(name, text) for name, text in problem.context.items()}
    return construct(evolve(problem, context=context, prompt=texts.get("", problem.prompt)))


def _chosen(parts: Mapping[str, Sequence[Section]], room: int) -> set[tuple[str, int]]:
    """
    The pieces that go, by file and place, so that the others and the marks fit the room.

    Costs are added up piece by piece, which is never less than the cost of the joined text.
    """
    order = [
        (piece.rank, place, index, name)
        for place, (name, pieces) in enumerate(parts.items())
        for index, piece in enumerate(pieces)
        if piece.rank
    ]
    cost = sum(estimated_tokens(piece.text) for pieces in parts.values() for piece in pieces)
    gone: set[tuple[str, int]] = set()
    for _, _, index, name in sorted(order, reverse=True):
        if cost <= room:
            break
        cost -= estimated_tokens(parts[name][index].text)
        beside = ((name, index - 1) in gone) + ((name, index + 1) in gone)
        cost += _MARK * (1 - beside)
        gone.add((name, index))
    return gone


def _joined(name: str, pieces: Sequence[Section], gone: set[tuple[str, int]]) -> str:
    """The text without some of its pieces; a mark says how many lines each gap had."""
    text, gap = [], 0
    for index, piece in enumerate(pieces):
        if (name, index) in gone:
            gap += piece.lines
            continue
        text += [_mark(name, gap), piece.text] if gap else [piece.text]
        gap = 0
    return "".join([*text, _mark(name, gap) if gap else ""])


def _mark(name: str, lines: int) -> str:
    start = "// " if name.endswith(HDL) else ""
    return f"{start}[... {lines} lines cut]\n"
