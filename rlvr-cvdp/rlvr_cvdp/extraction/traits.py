"""Tells what a piece of code is: a test, an empty shell, a text with parts left out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlvr_cvdp.hdl.definitions import Definition
from rlvr_cvdp.paths import HDL

_CODE = re.compile(
    r"\b((?:macro)?module|interface|package|program|primitive)\b|`define"
    r"|(?m:^[ \t]*class\s+\w+[^\n]*;)"
)
_HEADER = re.compile(r"\b(parameter|localparam|typedef|function|task)\b|`(ifn?def|include)\b")
_WRONG = (
    r"(?:original(?:ly)?|initial|old(?:er)?|previous|earlier|former|wrong|incorrect|mistaken|buggy|"
    r"faulty|broken|bad|na\u00efve|naive|alternative|alternate|optional|unfixed|unmodified)"
)
_THING = (
    r"(?:code|rtl|verilog|systemverilog|version|variant|module|implementation|design|attempt|"
    r"approach|draft|file|one|way|solution|answer|style|snippet|example|listing|form"
    r"|[\w/]+\.s?vh?)s?"
)
_IS = (
    r"(?:\s+(?:is|was|were|would be|could be|looks?|looked|might be))?"
    r"(?:\s+(?:like )?(?:this|as follows|so))?"
)
_SAYS = (
    r"(?:(?:and|but|or|so|note|here|this|that|it|these|also|only|see|compare|with|is|was|here's|"
    r"be|are|how)\s+){0,4}"
)
_THE = r"(?:(?:a|an|the|your|my|one|another|what)\s+)?"
_DOUBTFUL = (
    rf"{_SAYS}{_THE}(?:\w+\s+){{0,2}}?{_WRONG}\s+(?:[\w-]+\s+){{0,2}}?{_THING}{_IS}",
    rf"{_SAYS}{_THE}(?:\w+\s+){{0,2}}(?:variant|alternative|anti-?pattern|mistake|pitfall){_IS}",
    rf"{_THE}(?:counter-?)?example of {_THE}(?:\w+\s+)?(?:{_WRONG}|not)\b.*",
    rf"(?:this|it|which|the following)\s+(?:(?:would|could|might)\s+be|is)\s+{_WRONG}",
    rf"{_SAYS}(?:the\s+)?{_WRONG}",
)
_DOUBTS = re.compile("|".join(f"(?:{pattern})" for pattern in _DOUBTFUL), re.IGNORECASE)
_OPENING = re.compile(
    r"(?i)(?:alternatively|for (?:comparison|reference|illustration|contrast)|previously|"
    r"originally|before(?:\s+(?:the|this|my)\b.*|\W*$)|don't|do not|never|avoid\b|usage\b|"
    r"instead of\W*$|not\b|optional(?:ly)?\b|.*\b(?:what|how) not to\b|"
    r"if you (?:prefer|want|need|like|would)\b)"
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
    """Whether a text can be the file at all; a file that is not Verilog takes any text."""
    if not path.endswith(HDL):
        return bool(body.strip())
    return bool(_CODE.search(body) or (is_header(path) and _HEADER.search(body)))


def is_header(path: str) -> bool:
    """Whether a file is a Verilog header."""
    return path.endswith((".vh", ".svh"))


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
    """
    Whether prose presents the code after it as something other than the answer.

    Only the words right before it are read, and they must name it so ("the old code was:"): a
    sentence that tells what was wrong before ("this avoids the bug of the old code:") does not.
    """
    line = re.sub(r"[*_`#>\"]|^[ \t]*//|\([^)]*\)", " ", lead.rpartition("\n")[2][-300:]).replace(
        "\u2019", "'"
    )
    sentence = " ".join(re.split(r"[.!?;](?:\s|$)", line.strip(" \t:.-"))[-1].split())
    clause = re.split(r"[,:\u2013\u2014]\s|\s-\s", sentence)[-1].strip(" :,.-")
    clause = re.sub(r"\s+for (?:comparison|reference|illustration|contrast)$", "", clause)
    if _SURE.search(sentence):
        return False
    is_named = _DOUBTS.fullmatch(clause) and not re.search(r"(?i)\bno[tr]?\b|n't\b", clause)
    return bool(is_named or _OPENING.match(sentence))


def stem(path: str) -> str:
    """A file's name without folder and ending."""
    return path.rsplit("/", 1)[-1].split(".")[0]
