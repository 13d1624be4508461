"""Splits a prompt's texts into pieces, each with a rank: how soon it may be left out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from attrs import frozen

from rlvr_cvdp.paths import HDL
from rlvr_cvdp.problem import CvdpProblem

KEEP, OWN_BODY, BODY, PROSE, EXAMPLE, DOCUMENT = range(6)
"""Ranks: a higher one goes sooner, and 0 never."""

_DECLARES = re.compile(
    r"\b(input|output|inout|parameter|localparam|module|endmodule|interface|endinterface|package"
    r"|endpackage|typedef|modport)\b|^\s*`",
)
_GOES_ON = re.compile(r"^\s*(input|output|inout|parameter|localparam|typedef)\b")
_HEADING = re.compile(r"^\s*(#{1,6}\s|\*\*[^*]+\*\*:?\s*$|[A-Z][\w /-]{2,40}:\s*$)")
_INTERFACE = re.compile(
    r"interface|\bports?\b|signals?\b|parameters?\b|\binputs?\b|\boutputs?\b|\bi/?o\b|\bpins?\b"
    r"|module name",
    re.IGNORECASE,
)
_DECLARED = re.compile(r"\s*(?:[-*|]\s*)?[`*]*(?:input|output|inout|parameter|module)\b")
_DEEPEST = 7
_TABLE = re.compile(r"^\s*\|")


@frozen
class Section:
    """Some lines that stay or go together."""

    text: str
    rank: int

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return max(1, self.text.count("\n"))


def pieces_of(name: str, text: str, problem: CvdpProblem) -> list[Section]:
    """
    The pieces of a context file, or of the request where `name` is "". Joined they are the text.

    Never cut (rank 0): of Verilog, each line up to the end of a module's header, declarations of
    ports, parameters and types, and directives; of prose, paragraphs that name a file to write or
    the module it is called after, that declare ports or parameters in code, and all that stands
    under a heading that speaks of the interface; of the request, its first paragraph.
    """
    if name.endswith(HDL):
        is_own = name in problem.targets
        rank = OWN_BODY if is_own else DOCUMENT if name.startswith("verif/") else BODY
        return list(_code(text, rank))
    names = [target.rsplit("/", 1)[-1] for target in problem.targets]
    names += [re.escape(n.split(".")[0]) for n in names]
    wanted = re.compile(r"\b(" + "|".join(names or ["(?!)"]) + r")\b")
    return list(_prose(text, wanted, is_request=not name))


def _code(text: str, rank: int) -> Iterator[Section]:
    goes_on = False
    body: list[str] = []
    for line in text.splitlines(keepends=True):
        code = line.partition("//")[0]
        begins = bool(re.search(r"\b(module|interface|package)\b", code))
        is_kept = begins or goes_on or bool(_DECLARES.search(code))
        body += [] if is_kept else [line]
        if body and (is_kept or not line.strip()):
            yield Section("".join(body), rank)
            body = []
        if is_kept:
            yield Section(line, KEEP)
            is_open = ";" not in code or bool(re.search(r"\bimport\b", code))
            goes_on = (begins or goes_on or bool(_GOES_ON.search(code))) and is_open
    if body:
        yield Section("".join(body), rank)


def _prose(text: str, wanted: re.Pattern[str], *, is_request: bool) -> Iterator[Section]:
    depth = 0  # of the heading that speaks of the interface, 0 outside of its section
    is_example = False
    for number, paragraph in enumerate(_paragraphs(text)):
        first = paragraph.lstrip().partition("\n")[0]
        if _HEADING.match(first):
            level = len(first) - len(first.lstrip("#")) or _DEEPEST
            if not depth or level <= depth:
                depth = level if _INTERFACE.search(first) else 0
            is_example = "xample" in first
        declares = any(_DECLARED.match(line) for line in paragraph.splitlines())
        if depth or declares or wanted.search(paragraph) or (is_request and not number):
            rank = KEEP
        elif not is_request:
            rank = DOCUMENT
        else:
            is_shown = is_example or _TABLE.match(first) or "```" in paragraph
            rank = EXAMPLE if is_shown else PROSE
        yield Section(paragraph, rank)


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs with the blank lines after them; a heading begins one, a fence is kept whole."""
    lines: list[str] = []
    in_fence = False
    for line in text.splitlines(keepends=True):
        ended = bool(lines) and not lines[-1].strip() and bool(line.strip())
        if lines and not in_fence and (ended or _HEADING.match(line)):
            yield "".join(lines)
            lines = []
        if line.lstrip().startswith("```"):
            in_fence = not in_fence
        lines.append(line)
    if lines:
        yield "".join(lines)
