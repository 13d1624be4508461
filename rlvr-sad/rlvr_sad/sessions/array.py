"""The elements of a JSON array, one at a time: a long array is never held as a whole.

It stands in place of ijson, which gives values alone: each element here has its line, for errors,
and its text, from which the key of the cache is made. ijson takes as long or longer (15 MB in .16
to .24 s against .15 s) and reads numbers in another way than `json`.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import IO, Any

from attrs import frozen

from rlvr_sad.sessions.record import BrokenFileError

_CHUNK = 1 << 16
_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@frozen
class Element:
    """One element: its text, its value, and the line at which it begins."""

    line: int
    text: str
    value: Any


class _Window:
    """The part of the text that is being looked at."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._limit = limit
        self.text = ""
        self.at = 0
        self.line = 1
        self.is_whole = False

    def grow(self) -> None:
        """Read more, as much again as is held: the cost of a long element stays linear."""
        if len(self.text) - self.at > self._limit:
            raise BrokenFileError(f"an element has more than {self._limit >> 20} MiB", self.line)
        data = self._file.read(max(_CHUNK, len(self.text) - self.at))
        try:
            more = self._decode.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise BrokenFileError(f"it is not UTF-8: {error.reason}", self.line) from None
        self.is_whole = not data
        self.text = self.text[self.at :] + more
        self.at = 0

    def next_char(self) -> str:
        """The next character that is no blank, without passing it; "" at the end."""
        while True:
            end = _BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]
            self.line += self.text.count("\n", self.at, end)
            self.at = end
            if end < len(self.text) or self.is_whole:
                return self.text[end : end + 1]
            self.grow()


def elements_of(file: IO[bytes], limit: int) -> Iterator[Element]:
    """
    The elements of the array that the file is.

    Raises:
        BrokenFileError: It is no array, is broken off, or holds an element beyond the bound.
    """
    window = _Window(file, limit)
    if window.next_char() != "[":
        raise BrokenFileError("it is no JSON array")
    window.at += 1
    while True:
        if window.next_char() == "]":
            window.at += 1
            break
        yield _element(window)
        char = window.next_char()
        window.at += 1
        if char == "]":
            break
        if char != ",":
            found = f"expected ',' or ']' after an element, found {char!r}"
            raise BrokenFileError(found, window.line)
    if window.next_char():
        raise BrokenFileError("there is more after the end of the array", window.line)


def _element(window: _Window) -> Element:
    while True:
        try:
            value, end = _DECODER.raw_decode(window.text, window.at)
        except json.JSONDecodeError as error:
            if window.is_whole:
                line = window.line + window.text.count("\n", window.at, error.pos)
                raise BrokenFileError(f"it is no JSON: {error.msg}", line) from None
        else:
            if end < len(window.text) or window.is_whole:  # else a number may go on
                text = window.text[window.at : end]
                element = Element(window.line, text, value)
                window.line += text.count("\n")
                window.at = end
                return element
        window.grow()
