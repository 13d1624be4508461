"""Cuts a text of several definitions into one text for each, with what belongs to it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from rlvr_cvdp.hdl.definitions import Definition

_REST = re.compile(
    r"[ \t]*(?::[ \t]*\w+)?[ \t]*;?[ \t]*(?://[^\n]*|/\*[^\n]*?\*/)?[ \t]*\r?(?:\n|\Z)"
)
_TAIL = re.compile(
    r"(?:[ \t]*\r?\n)*[ \t]*`(?:endif|default_nettype|undef|resetall)\b[^\n]*(?:\n|\Z)"
)
_DIRECTIVE = re.compile(
    r"^[ \t]*`(?:timescale|default_nettype|define|include)\b(?:\\\r?\n|[^\n])*\n?", re.MULTILINE
)
_GUARD = re.compile(r"`(?:ifn?def|elsif|else|endif)\b")
_MEANINGLESS = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|\s+", re.DOTALL)


def segments_of(text: str, defined: Sequence[Definition]) -> Mapping[Definition, str]:
    """
    The text of each definition, with comments and directives before it and ends after it.

    Directives at the start of the text (time scale, macros, includes) go before each of them.
    """
    places = _places(text, defined)
    if not places:
        return {}
    head = _head(text, places[0][0])
    found: dict[Definition, str] = {}
    begin = 0
    for definition, end in places:
        own = text[begin:end]
        found[definition] = own if begin == 0 else head + own.lstrip("\n")
        begin = end
    return found


def without(text: str, defined: Sequence[Definition], drop: Collection[Definition]) -> str:
    """The text without some of its definitions."""
    places = _places(text, defined)
    kept, begin = [], 0
    is_first_gone = bool(places) and places[0][0] in drop
    for definition, end in places:
        if definition not in drop:
            kept.append(text[begin:end])
        begin = end
    head = _head(text, places[0][0]) if is_first_gone else ""
    return (head + "".join(kept).lstrip("\n") if is_first_gone else "".join(kept)) + text[begin:]


def distinct_text(text: str) -> str:
    """The text without blanks and comments, to tell whether two are the same code."""
    return _MEANINGLESS.sub("", text)


def _head(text: str, first: Definition) -> str:
    before = text[: first.start]
    if _GUARD.search(before):
        return ""
    return "".join(match[0].rstrip("\n") + "\n" for match in _DIRECTIVE.finditer(before))


def _places(text: str, defined: Sequence[Definition]) -> list[tuple[Definition, int]]:
    """Definitions that are not inside another one, each with the end of its text."""
    places: list[tuple[Definition, int]] = []
    last = 0
    for definition in sorted(defined, key=lambda d: d.start):
        if definition.start < last:
            continue
        end = definition.end
        match = _REST.match(text, end)
        end = match.end() if match else end
        while tail := _TAIL.match(text, end):
            end = tail.end()
        places.append((definition, end))
        last = end
    return places
