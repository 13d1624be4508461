"""Removes a model's reasoning before its answer, and the tokens that end its turn."""

from __future__ import annotations

import re

_WORDS = (
    r"think|thinking|thoughts?|reasoning|reflection|scratchpad|inner_monologue|antThinking"
    r"|analysis|seed:think|seed:cot_budget_reflect"
)
_PAIRS = (
    (rf"<(?:{_WORDS})>", rf"</(?:{_WORDS})>"),
    (r"\[(?:THINK|THINKING|REASONING)\]", r"\[/(?:THINK|THINKING|REASONING)\]"),
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    (r"<\|channel>thought", r"<channel\|>"),
    (r"<\|?unused94\|?>(?:thought)?", r"<\|?unused95\|?>"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
)  # fmt: skip
_MARKS = [
    (re.compile(rf"(?P<open>{opening})|(?P<close>{closing})", re.IGNORECASE))
    for opening, closing in _PAIRS
]
_ANALYSIS = re.compile(
    r"<\|channel\|>analysis\b[^<\n]*<\|message\|>.*?"
    r"(?:<\|(?:end|call|return)\|>|(?=<\|start\|>)|(?=<\|channel\|>)|\Z)",
    re.DOTALL,
)
_TOKENS = re.compile(
    r"<\|channel\|>commentary[^<\n]*|<\|constrain\|>\w*|<\|(?:start|message)\|>(?:assistant)?|<\|channel\|>final[^<\n]*"
    r"|<[|\uff5c][\w\u2581 ]{1,40}[|\uff5c]>|<(?:end|start)_of_turn>(?:model)?"
    r"|(?:\A\s*|^[ \t]*)(?:</?s>|\[/?INST\])|(?:</?s>|\[/?INST\])\s*\Z",
    re.MULTILINE,
)
"""Tokens around a turn; those that code may hold, too, only where a line begins or at the end."""


def without_reasoning(text: str) -> str:
    """
    The text outside of the reasoning, for all known tags.

    Thinking that was never closed goes on to the end; a closing tag alone ends thinking that the
    prompt began. A tag that is never closed opens thinking only where a line begins, since an
    answer may speak of it.
    """
    text = _ANALYSIS.sub("", text)
    for marks in _MARKS:
        text = _outside(text, marks)
    return _TOKENS.sub("", text)


def _outside(text: str, marks: re.Pattern[str]) -> str:
    kept: list[str] = []
    depth, begun = 0, 0
    found = list(marks.finditer(text))
    last = max((match.start() for match in found if match["open"] is None), default=-1)
    for match in found:
        if match["open"] is not None:
            if depth == 0:
                line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
                if line.strip() and match.start() > last:
                    continue
                kept.append(text[begun : match.start()])
            depth += 1
        else:
            if depth == 0:
                kept.clear()
            depth = max(0, depth - 1)
            begun = match.end()
    return "".join(kept) + ("" if depth else text[begun:])
