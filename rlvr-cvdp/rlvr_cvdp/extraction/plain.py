"""Finds code in prose without fences, and files that shell or Python scripts would write."""

from __future__ import annotations

import re
from itertools import islice

from rlvr_cvdp.extraction.objects import unescaped
from rlvr_cvdp.extraction.pieces import Piece, paths_in
from rlvr_cvdp.hdl.definitions import definitions_of

_OPENER = r"(?:module|macromodule|package|interface|program|primitive)"
BEGINS = re.compile(
    rf"[ \t]*(?:\(\*[^\n]*?\*\)[ \t]*)?({_OPENER})[ \t]+(?:automatic[ \t]+|static[ \t]+)?"
    r"\\?[A-Za-z_][\w$]*[ \t]*(?:[#(;]|import\b|//|/\*|\r?$)"
)
_GLUE = re.compile(
    r"[ \t]*(?:\r?$|//|/\*|`[A-Za-z_]|\(\*|(?:import|export|typedef|localparam|parameter|timeunit|"
    r"timeprecision|enum|struct|logic|bit|function|endfunction)\b|\}|[A-Z_][A-Z0-9_]*[ \t]*[=,])"
)
_COMMENT_END = re.compile(r"[^\n]*\*/[ \t]*\r?$")
_BLOCK_END = re.compile(r"[ \t]*(?:end(function|task|class|clocking)\b|(\}))")
_TAIL = re.compile(r"[ \t]*(?:`(?:endif|default_nettype|undef|resetall|end\w+)\b|//[^\n]*$|\r?$)")
HEREDOC = re.compile(r"[ \t$#]*(?:sudo[ \t]+)?(?:cat|tee)\b[^\n]{0,300}<<-?[ \t]*(['\"\\]?)(\w+)")
_ECHO = re.compile(r"(?m)^[ \t$]*(?:echo|printf)[ \t]+(?:-\w+[ \t]+)?(['\"])")
_ECHO_ENDS = {sign: re.compile(rf"(?m){sign}[ \t]*>>?[ \t]*(\S+)[ \t]*$") for sign in "'\""}
_MOST_ECHOS = 100
_TRIPLE = re.compile(r"(\"\"\"|''')(.*?)\1", re.DOTALL)
_SHORT = re.compile(r"([\"'])((?:\\.|(?!\1)[^\\\n])*)\1")
CODE = re.compile(r"\b(?:module|package|interface|program|primitive|macromodule|typedef)\b|`define")


def plain_code(lines: list[str], rest: list[str]) -> list[tuple[list[str], list[str]]]:
    """Runs of lines that are code, each with the lines before it; the others go to `rest`."""
    found: list[tuple[list[str], list[str]]] = []
    place, free = 0, 0
    while place < len(lines):
        match = BEGINS.match(lines[place])
        if match is None:
            place += 1
            continue
        begin = place
        while begin > free:
            opening = begin - 1
            if _COMMENT_END.match(lines[opening]):
                while opening > free and "/*" not in lines[opening]:
                    opening -= 1
            elif block := _BLOCK_END.match(lines[opening]):
                opener = re.compile(r"\{" if block[2] else rf"\b{block[1]}\b")
                while opening > free and not opener.search(lines[opening - 1]):
                    opening -= 1
                begin = opening = max(free, opening - 1)
                continue
            if not _GLUE.match(lines[opening]):
                break
            begin = opening
        closer = re.compile(rf"\bend{match[1].removeprefix('macro')}\b")
        end = place
        while end < len(lines) and not closer.search(lines[end]):
            end += 1
        end = min(end + 1, len(lines))
        if end - 1 < len(lines):
            last = closer.search(lines[end - 1])
            if last:
                label = re.match(r"[ \t]*(?::[ \t]*\w+|//[^\n]*)?", lines[end - 1][last.end() :])
                cut = last.end() + (label.end() if label else 0)
                lines[end - 1] = lines[end - 1][:cut].rstrip() + "\n"
        while end < len(lines) and _TAIL.match(lines[end]):
            end += 1
        if found and begin == free:
            found[-1][0].extend(lines[begin:end])
        else:
            rest.extend(lines[free:begin])
            found.append((lines[begin:end], [line for line in rest[-60:] if line.strip()][-3:]))
        place = free = end
    rest.extend(lines[free:])
    return found


def without_prose(text: str) -> str:
    """The lines from the first complete definition to the last; all lines if there is none."""
    text = re.sub(r"`{1,2} ?(?=module\b)", "", text)  # code within a line of prose
    whole = [d for d in definitions_of(text) if d.is_complete]
    if not whole:
        return text
    begin = whole[0].start
    while begin:
        line = text.rfind("\n", 0, begin - 1) + 1
        if text[begin - 1] != "\n" or not _GLUE.match(text[line:begin]):
            break
        begin = line
    end = max(d.end for d in whole)
    last = text.find("\n", end) + 1 or len(text)
    while last < len(text):
        after = text.find("\n", last) + 1 or len(text)
        if not _TAIL.match(text[last:after]):
            break
        end = last = after
    return text[begin:end]


def heredocs(body: str) -> list[Piece]:
    """Files that a shell script writes with `cat > FILE << WORD`, or with `echo '...' > FILE`."""
    found: list[Piece] = []
    for opened in islice(_ECHO.finditer(body), _MOST_ECHOS):
        closed = _ECHO_ENDS[opened[1]].search(body, opened.end())
        if closed and CODE.search(body, opened.end(), closed.start()):
            text = body[opened.end() : closed.start()].lstrip("\n")
            text = re.sub(r'\\(["$`\\])', r"\1", text) if opened[1] == '"' else text
            found.append(Piece(body=text, name=closed[1], is_sure=True, where="shell"))
    lines = body.splitlines(keepends=True)
    place = 0
    while place < len(lines):
        match, paths = HEREDOC.match(lines[place]), paths_in(lines[place])
        place += 1
        if match is None or not paths:
            continue
        begin = place
        while place < len(lines) and lines[place].strip() != match[2]:
            place += 1
        text = "".join(lines[begin:place])
        if not match[1]:
            text = re.sub(r"\\([$`\\])", r"\1", text)
        found.append(Piece(body=text, name=paths[0], is_sure=True, where="shell"))
    return found


def python_strings(body: str) -> list[Piece]:
    """Strings of a Python program that hold code, named by the path before them."""
    found: list[Piece] = []
    last = 0
    pattern = _TRIPLE if _TRIPLE.search(body) else _SHORT
    for match in pattern.finditer(body):
        if CODE.search(match[2]) and (pattern is _TRIPLE or "\\n" in match[2]):
            paths = paths_in(body[max(last, match.start() - 300) : match.start()])
            text = match[2].removeprefix("\\").lstrip("\n")
            text = text if pattern is _TRIPLE else unescaped(text)
            name = paths[-1] if paths else ""
            found.append(Piece(body=text, name=name, is_sure=bool(name), where="Python"))
        last = match.end()
    return found
