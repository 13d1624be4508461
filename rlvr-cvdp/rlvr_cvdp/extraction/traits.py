"""What a piece of code looks like: a test, an empty shell, a text with parts left out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlvr_cvdp.extraction.definitions import Definition

HDL = (".v", ".sv", ".vh", ".svh")
_CODE = re.compile(r"\b((?:macro)?module|interface|package|program|primitive)\b|`define")
_HEADER = re.compile(r"\b(parameter|localparam|typedef|function|task)\b|`(ifn?def|include)\b")
_DOUBTS = re.compile(
    r"(?i)\b(?:wrong|incorrect|mistakes?|buggy|bug|broken|naive|na\u00efve|draft|attempt|original|"
    r"before|instead of|avoid|don't|do not|should not|alternative(?:ly)?|optional(?:ly)?|variant|"
    r"simplified|for (?:reference|illustration)|example|e\.g\.|sketch|skeleton|template|unlike|"
    r"not synthesi[sz]able|usage|instantiat\w+|anti-?pattern|bad|old|previous(?:ly)?)\b"
)
_SURE = re.compile(
    r"(?i)\b(?:final|complete|corrected|fixed|full|updated|improved|revised|solution|answer|working|"
    r"modified|correct)\b"
)
_ELIDED = re.compile(
    r"(?://|/\*)[ \t]*(?:\.\.\.|\u2026)"
    r"|(?://|/\*)[^\n]{0,120}(?:\.\.\.|\u2026)[^\n]{0,20}"
    r"\b(?:code|logic|ports?|unchanged|same|rest|here)\b"
    r"|(?i:(?://|/\*)[^\n]{0,40}\b(?:rest of|remaining|existing|same as|unchanged|omitted|"
    r"as before|your code|goes here|previous)\b[^\n]{0,60}"
    r"(?:\.\.\.|\u2026|here\b|unchanged|omitted|as before))"
    r"|^[ \t]*(?:\.\.\.|\u2026)[ \t]*\r?$",
    re.MULTILINE,
)
_WORKING = re.compile(
    r"\b(?:assign|always\w*|initial|final|for|if|case\w*|function|task|assert|property|specify)\b|[<]=|=\s"
)
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


def is_code(path: str, body: str) -> bool:
    """Whether a text can be the file at all; a file that is no Verilog takes any text."""
    if not path.endswith(HDL):
        return bool(body.strip())
    is_header = path.endswith((".vh", ".svh"))
    return bool(_CODE.search(body) or (is_header and _HEADER.search(body)))


def is_bench(definition: Definition, wanted: Sequence[str]) -> bool:
    """Whether a definition looks like a test: no ports, and it makes instances."""
    name = definition.name.lower()
    is_named = bool(re.search(r"(?:^|_)(?:tb|test|testbench|bench)(?:_|\d|$)", name))
    is_closed = not definition.has_ports and definition.kind in ("module", "program")
    return definition.name not in wanted and is_closed and (is_named or bool(definition.uses))


def is_hollow(text: str, definition: Definition) -> bool:
    """Whether a module has ports and nothing in it."""
    if definition.kind not in ("module", "macromodule") or definition.uses:
        return False
    return not _WORKING.search(_COMMENTS.sub(" ", text).partition(";")[2])


def is_elided(text: str) -> bool:
    """Whether a text leaves out code and says so, with dots in a comment."""
    return bool(_ELIDED.search(text))


def is_doubtful(lead: str) -> bool:
    """Whether prose presents what follows as something other than the answer."""
    line = lead.rpartition("\n")[2]
    return bool(_DOUBTS.search(line)) and not _SURE.search(line)


def stem(path: str) -> str:
    """A file's name without folder and ending."""
    return path.rsplit("/", 1)[-1].split(".")[0]
