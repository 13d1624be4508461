"""Reads an agent's actions out of its text: fenced blocks whose first line says what to do."""

from __future__ import annotations

import re
from typing import Literal, get_args

from attrs import frozen

Verb = Literal["list", "read", "write", "replace", "run", "submit"]

VERBS: tuple[str, ...] = get_args(Verb)
MAX_ACTIONS = 16
"""Actions of one turn that are done; the rest is refused."""
MAX_RUNS = 4
"""Tools that are run in one turn."""

_OPEN = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$")
_PARTS = re.compile(
    r"\A\s*<{5,}[^\n]*\n(?P<old>.*?)^={5,}[ \t]*\n(?P<new>.*?)^>{5,}[^\n]*\s*\Z",
    re.DOTALL | re.MULTILINE,
)
_RANGE = re.compile(r"(\d{1,9})(?:\s*[-:,]\s*(\d{1,9})?)?")
_PREFIXES = ("action", "tool", "action:", "tool:")


@frozen(kw_only=True)
class Action:
    """
    One action. `words` are its arguments, `body` the text of its block (`old` for `replace`).

    `error` says what is wrong with it; it is then not done.
    """

    verb: str
    words: tuple[str, ...] = ()
    body: str = ""
    new: str = ""
    error: str = ""

    @property
    def title(self) -> str:
        """`read rtl/a.sv 1-20`."""
        return " ".join([self.verb, *self.words])[:120]

    @property
    def lines(self) -> tuple[int, int | None]:
        """First and last line that a `read` asks for."""
        match = _RANGE.fullmatch(" ".join(self.words[1:]))
        if match is None:
            return 1, None
        is_single = match[2] is None and match[0] == match[1]
        first = int(match[1])
        return first, first if is_single else int(match[2]) if match[2] else None


def actions_of(completion: str) -> list[Action]:
    """
    The actions in a text, in order; everything outside of their blocks is the policy's own.

    A block begins with three or more backticks (or tildes) and an action, and ends with as many or
    more. Other blocks (```verilog) are no actions. What stands up to `</think>` is left out.
    """
    lines = completion.rpartition("</think>")[2].replace("\r\n", "\n").split("\n")
    found: list[Action] = []
    place = 0
    while place < len(lines):
        opened = _OPEN.match(lines[place])
        place += 1
        if opened is None:
            continue
        fence, body = opened[1], []
        close = re.compile(rf"^ {{0,3}}{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$")
        is_closed = False
        while place < len(lines) and not is_closed:
            is_closed = close.match(lines[place]) is not None
            if not is_closed:
                body.append(lines[place])
            place += 1
        action = _action(opened[2].split(), body, is_closed)
        if action is not None:
            found.append(action)
    return found


def _action(words: list[str], body: list[str], is_closed: bool) -> Action | None:
    if words and words[0].lower() in _PREFIXES:  # ```action write rtl/a.sv, or on the next line
        words = words[1:]
        if not words and body:
            words, body = body[0].split(), body[1:]
    if not words:
        return None
    verb = words[0].lower()
    if verb not in VERBS:
        is_meant = len(words) == 2 and "/" in words[1] and verb.isalpha()
        if not is_meant:
            return None
        error = f"there is no action {verb[:20]!r}: {', '.join(VERBS)}"
        return Action(verb=verb, words=tuple(words[1:]), error=error)
    text = "".join(f"{line}\n" for line in body)
    arguments = tuple(words[1:])
    if not is_closed and (text.strip() or verb in ("write", "replace")):
        return Action(verb=verb, words=arguments, error="its block is not closed (cut off?)")
    return _complete(verb, arguments, text)


def _complete(verb: str, words: tuple[str, ...], text: str) -> Action:
    """The action with its arguments checked for their number and kind."""
    error, new = "", ""
    if verb in ("read", "write", "replace") and not words:
        error = f"write the path behind it: {verb} rtl/name.sv"
    elif verb == "read" and words[1:] and not _RANGE.fullmatch(" ".join(words[1:])):
        error = "lines are given as FIRST-LAST: read rtl/name.sv 10-40"
    elif verb in ("write", "replace") and len(words) > 1:
        error = "one path is wanted"
    elif verb == "run" and not words:
        error = "say which tool: run compile"
    elif verb == "replace":
        parts = _PARTS.match(text)
        if parts is None:
            error = "its block must hold <<<<<<<, the old lines, =======, the new lines, >>>>>>>"
        else:
            text, new = parts["old"], parts["new"]
    return Action(verb=verb, words=words, body=text, new=new, error=error)
