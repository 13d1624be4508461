"""
Reads JSON as models write it: with the usual mistakes, or as a Python literal.

Not by a library that repairs JSON: json-repair 0.64.6 in this place lost 8 of the first 440 cases
of `tests/test_answer_shapes.py`, and then a hostile text kept it busy for minutes.
"""

from __future__ import annotations

import json
import re
from typing import Any

_GAP = r"(?:\s+|//[^\n]*\n|/\*[^*]{0,300}\*/)*"
_BLANK = re.compile(r"(?:\s+|//[^\n]*\n|/\*.*?\*/|#[^\n]*\n)*", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][\w.]*|-?\d[\w.+-]*")
_LONG = ('"""', "'''")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_VALUES = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_NEXT_KEY = re.compile(rf"{_GAP},{_GAP}(?:\"[^\"\n]{{1,300}}\"|'[^'\n]{{1,300}}')\s*:")
_NEXT_ITEM = re.compile(rf"{_GAP},{_GAP}[\[{{\"']")
_SPACE = re.compile(_GAP)
_JOIN = re.compile(rf"{_GAP}\+{_GAP}(?=[\"'`])")
"""Between two strings that are one."""
_SIDE = re.compile(rf"{_GAP}(?=[\"'`])")
_JOINED = re.compile(r"\s*\.\s*join\s*\(\s*(?:\"[^\"\n]*\"|'[^'\n]*')\s*\)")
"""A list of lines that a program puts together."""
_PART_ENDS = re.compile(r"\s*\n\s*[\"']|\s*\)\s*[,}\]]")
_DEEPEST = 60


class _NotReadableError(ValueError):
    """No object or list stands here."""


class _CutOffError(ValueError):
    """The text ends inside an object; `value` is the part that was read."""

    def __init__(self, value: Any) -> None:
        self.value = value


def read_object(text: str, start: int) -> tuple[Any, int] | None:
    """
    The object or list that begins at a place, and the place after it; None where none does.

    Strict JSON first. Else the same with raw line ends or quotes inside of strings, single or
    triple quotes, commas before a closing bracket, comments, and Python's names of values. An
    object that the end of the text cuts off gives what was read of it.
    """
    try:
        return json.JSONDecoder(strict=False).raw_decode(text, start)
    except (ValueError, RecursionError):
        pass
    try:
        return _Reader(text).value(start, "")
    except _CutOffError as cut:
        return cut.value, len(text)
    except _NotReadableError:
        return None


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, place: int, closers: str) -> tuple[Any, int]:
        """The value at a place; `closers` are the brackets that are open around it."""
        text = self._text
        if len(closers) > _DEEPEST:
            raise _NotReadableError
        place = self._skip(place)
        sign = text[place]
        if sign == "{":
            return self._mapping(place + 1, closers)
        if sign == "[":
            return self._list(place + 1, closers)
        if sign in "\"'`":
            return self._strings(place, closers)
        if sign == "(" and self._text[self._skip(place + 1)] in "\"'":
            found, place = self._strings(self._skip(place + 1), closers + ")")
            place = self._skip(place)
            if text[place] != ")":
                raise _NotReadableError
            return found, place + 1
        if sign in "rfb" and text[place + 1 : place + 2] in ('"', "'"):
            return self._string(place + 1, closers)
        word = _WORD.match(text, place)
        if not word:
            raise _NotReadableError
        return _VALUES.get(word[0], word[0]), word.end()

    def _mapping(self, place: int, closers: str) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        key = ""
        try:
            while True:
                place = self._skip(place)
                if self._text[place] == "}":
                    return found, place + 1
                if self._text[place] == ",":
                    place += 1
                    continue
                key, place = self._key(place)
                place = self._skip(place)
                if self._text[place] != ":":
                    raise _NotReadableError
                found[key], place = self.value(place + 1, closers + "}")
        except _CutOffError as cut:
            if cut.value is not None:
                found[key] = cut.value
            raise _CutOffError(found) from None

    def _list(self, place: int, closers: str) -> tuple[list[Any], int]:
        found: list[Any] = []
        try:
            while True:
                place = self._skip(place)
                if self._text[place] == "]":
                    joined = _JOINED.match(self._text, place + 1)
                    return found, joined.end() if joined else place + 1
                if self._text[place] == ",":
                    place += 1
                    continue
                value, place = self.value(place, closers + "]")
                found.append(value)
        except _CutOffError as cut:
            raise _CutOffError([*found, *([cut.value] if cut.value is not None else [])]) from None

    def _key(self, place: int) -> tuple[str, int]:
        sign = self._text[place]
        if sign in "\"'":
            end = self._text.find(sign, place + 1, place + 400)
            if end < 0:
                raise _NotReadableError
            return self._text[place + 1 : end], end + 1
        word = _WORD.match(self._text, place)
        if not word:
            raise _NotReadableError
        return word[0], word.end()

    def _strings(self, place: int, closers: str) -> tuple[str, int]:
        """A string, or several that a `+` puts together, or brackets that hold nothing else."""
        found, place = self._string(place, closers)
        parts = [found]
        between = _SIDE if closers[-1:] == ")" else _JOIN
        while after := (_JOIN.match(self._text, place) or between.match(self._text, place)):
            found, place = self._string(after.end(), closers)
            parts.append(found)
        return "".join(parts), place

    def _string(self, place: int, closers: str) -> tuple[str, int]:
        text = self._text
        for quote in _LONG:
            if text.startswith(quote, place):
                end = text.find(quote, place + 3)
                if end < 0:
                    raise _NotReadableError
                return unescaped(text[place + 3 : end]), end + 3
        quote, begun = text[place], place + 1
        place = begun
        stops = re.compile(rf"[\\{quote}]")
        while True:
            match = stops.search(text, place)
            if not match:
                raise _CutOffError(unescaped(text[begun:]))
            place = match.start()
            if match[0] == "\\":
                place += 2
            elif quote == "`" or self._ends(place + 1, closers):
                return unescaped(text[begun:place]), place + 1
            else:
                place += 1

    def _ends(self, place: int, closers: str) -> bool:
        """Whether the quote before this place can end a string, judged by the text after it."""
        text = self._text
        inner = closers[-1:]
        if inner == "}" and _NEXT_KEY.match(text, place):
            return True
        if inner == "]" and (_NEXT_ITEM.match(text, place) or _list_ends(text, place)):
            return True
        if _JOIN.match(text, place) or (inner == ")" and _PART_ENDS.match(text, place)):
            return True
        closed = ""
        is_last = False
        while True:
            place = _SPACE.match(text, place).end()  # type: ignore[union-attr]
            sign = text[place : place + 1]
            if sign in ("}", "]"):
                closed += sign
            elif sign != ",":
                break
            is_last = sign == ","
            place += 1
        if not sign and not closed:
            return True  # the text ends here
        if not closed or not closers[::-1].startswith(closed[: len(closers)]):
            return False
        if len(closed) >= len(closers):
            return not sign or sign not in ";)"
        return not sign or (is_last and sign in "{['\"")

    def _skip(self, place: int) -> int:
        match = _BLANK.match(self._text, place)
        place = match.end() if match else place
        if place >= len(self._text):
            raise _CutOffError(None)
        return place


def _list_ends(text: str, place: int) -> bool:
    """Whether a list whose lines a program joins ends here."""
    match = _SPACE.match(text, place)
    return bool(
        match and text.startswith("]", match.end()) and _JOINED.match(text, match.end() + 1)
    )


def unescaped(text: str) -> str:
    """The text of a string between its quotes."""

    def plain(match: re.Match[str]) -> str:
        sign = match[1]
        if len(sign) == 5:
            return chr(int(sign[1:], 16))
        return _ESCAPES.get(sign, sign if sign in "\"'\\/`" else match[0])

    text = text.replace("\\n\\\n", "\\n")  # a line end, and the string goes on in the next line
    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", plain, text, flags=re.DOTALL)
