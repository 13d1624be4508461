"""Takes a message apart: fences, tags, JSON, shell and plain code, in the order they stand."""

from __future__ import annotations

import re

from attrs import evolve

from rlvr_cvdp.extraction.documents import DEEPEST, object_pieces
from rlvr_cvdp.extraction.objects import read_object
from rlvr_cvdp.extraction.pieces import Piece, is_path, name_in, paths_in
from rlvr_cvdp.extraction.plain import (
    BEGINS,
    CODE,
    HEREDOC,
    heredocs,
    plain_code,
    python_strings,
    without_prose,
)
from rlvr_cvdp.hdl.definitions import definitions_of

_OTHER = re.compile(r"(?m)^[ \t]*[\w./\"'-]+[ \t]*(?::[ \t]*[|>]?|=[ \t]*[\"'].*)[ \t]*$")
_MARK = re.compile(r"`{3,}|~{3,}")
_OBJECT = re.compile(
    r"\{\s*(?:\"[^\"\n]{1,300}\"|'[^'\n]{1,300}')\s*:|\[\s*(?:\{\s*[\"']|\[?[\"'])"
)
_TAG = re.compile(
    r"\s{0,80}<(?P<tag>[A-Za-z_][\w./-]{0,200})(?:=(?P<value>[^\s>]{1,200}))?"
    r"(?P<attributes>(?:\s+[\w:-]{1,60}\s*=\s*(?:\"[^\"\n]{0,300}\"|'[^'\n]{0,300}'|[^\s>\"']{1,200})){0,9})"
    r"\s*>"
)
_ATTRIBUTE = re.compile(r"([\w:-]+)\s*=\s*(?:\"([^\"\n]*)\"|'([^'\n]*)'|([^\s>\"']+))")
_NAME_TAGS = {
    *("path", "file_path", "filepath", "filename", "file_name", "name", "file", "target_file"),
    "title",
}
_HDL = {"verilog", "systemverilog", "sv", "v", "svh", "vh"}
_MARKDOWN = {"md", "markdown", "mdx"}
_SHELL = {"bash", "sh", "shell", "console", "zsh", "shellscript"}
_PYTHON = {"python", "py", "python3", "tool_code"}
_SCRIPT = {"javascript", "js", "typescript", "ts", "jsonc", "json5"}
_CALL = re.compile(r"[ \t]*(?:print\()?[\w.]+\([ \t]*(?:path|name|file_?\w*)[ \t]*=[ \t]*[\"']")
_CURLY = re.compile("[{,]\\s{0,80}\u201c[^\u201d\n]{1,300}\u201d\\s{0,80}:")
_LATEX = re.compile(r"[ \t]*\${0,2}(?:\\[a-z]+\{)+(?=[ \t]*(?:module|package|interface)\b)")
_MOST_BLOCKS, _MOST_MISSES = 2000, 100
_MOST_OBJECTS = 20


def pieces_of(text: str) -> list[Piece]:
    """All pieces of a message in order; if none is found, the whole text as one piece."""
    if _CURLY.search(text):
        text = text.replace("\u201c", '"').replace("\u201d", '"')
    found = _Scanner(0).scan(text)
    if not found and text.strip():
        found = [Piece(body=without_prose(text).strip(), where="the whole text")]
    counts: dict[str, int] = {}
    numbered = []
    for piece in found:
        counts[piece.where] = counts.get(piece.where, 0) + 1
        numbered.append(evolve(piece, where=f"{piece.where} {counts[piece.where]}"))
    return numbered


class _Scanner:
    """Reads a text line by line; the inside of a block goes to a scanner of its own."""

    def __init__(self, depth: int, name: str = "") -> None:
        self._depth, self._name = depth, name
        self._found: list[Piece] = []
        self._plain: list[str] = []
        self._blocks = self._misses = self._objects = 0

    def scan(self, text: str) -> list[Piece]:
        place = 0
        while place < len(text):
            end = text.find("\n", place) + 1 or len(text)
            line = text[place:end]
            if _CALL.match(line) and python_strings(text[place:]):
                self._block(text[place:], "python", "")
                break
            after = self._tag(text, place) if "<" in line else 0
            after = after or (self._object(text, place, line) if "{" in line or "[" in line else 0)
            after = after or (self._fence(text, place, line) if "``" in line or "~~" in line else 0)
            if not after:
                self._plain.append(_LATEX.sub("", line) if "\\" in line else line)
                after = end
            place = after
        self._flush()
        return self._found

    def _emit(self, piece: Piece) -> None:
        if not piece.name and self._name:
            piece = evolve(piece, name=self._name, is_sure=True)
        self._found.append(piece)

    # -- fences ------------------------------------------------------------------------------

    def _fence(self, text: str, place: int, line: str) -> int:
        mark = _MARK.search(line)
        self._blocks += 1
        if mark is None or self._blocks > _MOST_BLOCKS:
            return 0
        before, sign, info = line[: mark.start()], mark[0], line[mark.end() :].strip()
        if sign[0] == "~" and (before.strip(" \t>-*+0123456789.)") or re.search(r"\W", info[:1])):
            return 0
        if sign in info:
            body = info.partition(sign)[0]
            language, _, code = body.partition(" ")
            if language.isalpha() and language.lower() not in ("module", "package"):
                body = code
            self._plain.append(before)
            self._block(body.strip() + "\n", "", "")
            return place + line.index(sign, mark.end()) + len(sign)
        if sign[0] == "`" and "`" in info:
            return 0
        if before.strip(" \t>-*+0123456789.)"):
            self._plain.append(before + "\n")
        indent = len(before) - len(before.lstrip())
        body, end = _fence_body(text, place + len(line), sign, info, indent)
        self._block(body, info, before)
        return end

    def _block(self, body: str, info: str, before: str) -> None:
        lead = self._flush()
        language = re.split(r"[\s:{,]", info.lower(), maxsplit=1)[0]
        name, is_sure = name_in(info)
        if not name:
            name, is_sure = _last_name(lead.splitlines())
        first, _, after = body.lstrip().partition("\n")
        inner = first.strip().removeprefix("%%writefile").strip(" \t*`:")
        if is_path(inner) and CODE.search(after):
            name, is_sure, body = inner, True, after
        if not is_sure and (inner := _named_inside(body)):
            name, is_sure = inner, True
        if before.lstrip().startswith(">"):
            body = re.sub(r"(?m)^[ \t]*> ?", "", body)
        piece = Piece(
            body=body, name=name, is_sure=is_sure, language=language, lead=lead, where="fence"
        )
        for part in self._inside(piece):
            self._emit(part)

    def _inside(self, piece: Piece) -> list[Piece]:
        """The pieces inside a block that wraps others (JSON, shell, Markdown), else the block."""
        body, language = piece.body, piece.language
        if self._depth >= DEEPEST:
            return [piece]
        if language in _SHELL or (not language and HEREDOC.match(body.lstrip())):
            return heredocs(body) or [piece]
        if language in _PYTHON and (strings := python_strings(body)):
            return [piece, *strings]
        if body.lstrip().startswith(("{", "[", "<")) and not paths_in(piece.name)[1:]:
            inner = _Scanner(self._depth + 1).scan(body)
            if inner and not all(part.where == "plain text" for part in inner):
                return inner
        if language in _SCRIPT:
            inner = _Scanner(self._depth + 1).scan(body)
            if any(part.where == "JSON" for part in inner):
                return inner
        if language not in _HDL and _has_other_text(body):
            inner = _Scanner(self._depth + 1, piece.name).scan(body)
            if inner:
                return [evolve(part, lead=part.lead or piece.lead) for part in inner]
        if language in _MARKDOWN:
            return [piece, *_Scanner(self._depth + 1).scan(body)]
        if not language and body.lstrip().startswith(("```", "~~~")):
            return _Scanner(self._depth + 1, piece.name).scan(body) or [piece]
        return [piece]

    # -- tags --------------------------------------------------------------------------------

    def _tag(self, text: str, place: int) -> int:
        match = _TAG.match(text, place)
        if match is None or self._depth >= DEEPEST or self._misses >= _MOST_MISSES:
            return 0
        tag, value = match["tag"], (match["value"] or "").strip("\"'")
        attributes = [a or b or c for _, a, b, c in _ATTRIBUTE.findall(match["attributes"] or "")]
        named = [word for word in (*attributes, value, tag) if is_path(word)]
        closer = f"</{tag.split('=')[0]}>"
        end = text.find(closer, match.end())
        self._blocks += 1
        if (end < 0 and not named) or self._blocks > _MOST_BLOCKS:
            self._misses += 1
            return 0
        if end < 0:
            again = text.find(f"\n<{tag}", match.end())
            end, closer = (again if again >= 0 else len(text)), ""
        inner = text[match.end() : end]
        hints = {tag.lower(), value.lower(), *(a.lower() for a in attributes)}
        if hints & _NAME_TAGS and is_path(inner):
            self._name = inner.strip()
            return end + len(closer)
        lead = self._flush()
        inner = inner.strip().removeprefix("<![CDATA[").removesuffix("]]>").strip("\r\n")
        name = named[0] if named else self._name
        has_blocks = "```" in inner or "~~~" in inner or re.search(r"(?m)^\s*<[A-Za-z_]", inner)
        has_object = inner[:1] in "{[" and _OBJECT.match(inner)
        if name and inner and not has_blocks and not has_object:
            self._emit(Piece(body=inner + "\n", name=name, is_sure=True, lead=lead, where="tag"))
        else:
            for piece in _Scanner(self._depth + 1, name).scan(inner):
                self._emit(piece)
        return end + len(closer)

    # -- objects -----------------------------------------------------------------------------

    def _object(self, text: str, place: int, line: str) -> int:
        match = _OBJECT.search(text, place, place + len(line) + 400)
        if match is None or match.start() >= place + len(line) or self._objects >= _MOST_OBJECTS:
            return 0
        self._objects += 1
        read = read_object(text, match.start())
        found = object_pieces(read[0], self._depth, _scan) if read else []
        if read and read[1] == len(text) and not text.rstrip().endswith(("}", "]")):
            found = [p for p in found if any(d.is_complete for d in definitions_of(p.body))]
        if read is None or not found:
            return 0
        self._plain.append(text[place : match.start()])
        self._flush()
        for piece in found:
            self._emit(piece)
        return read[1]

    # -- plain text --------------------------------------------------------------------------

    def _flush(self) -> str:
        """Emit the code in the plain lines read until now; return the last three lines of prose."""
        lines, self._plain = self._plain, []
        rest = lines
        if any(BEGINS.match(line) for line in lines):
            rest = []
            for chunk, lead in plain_code(lines, rest):
                inner = _named_inside(chunk)
                name, is_sure = (inner, True) if inner else _last_name(lead)
                text = "".join(chunk).lstrip("\r\n")
                self._emit(
                    Piece(
                        body=text if text.endswith("\n") else text + "\n", name=name,
                        is_sure=is_sure, lead="".join(lead), where="plain text",
                    )
                )  # fmt: skip
        said = [line.strip() for line in rest[-60:] if line.strip()]
        return "\n".join(said[-3:])


def _scan(text: str, depth: int, name: str) -> list[Piece]:
    return _Scanner(depth, name).scan(text)


def _fence_body(text: str, place: int, sign: str, info: str, indent: int) -> tuple[str, int]:
    """The lines up to the fence that closes this one, and the place after it."""
    is_document = re.split(r"\W", info.lower(), maxsplit=1)[0] in _MARKDOWN
    lines: list[str] = []
    nested = 0
    while place < len(text):
        end = text.find("\n", place) + 1 or len(text)
        line = text[place:end]
        stripped = line.strip().lstrip("> ") if sign in line else ""
        if stripped.startswith(sign) and (sign[0] == "`" or not stripped.strip("~")):
            word = stripped.strip(sign[0]).strip()
            if word and re.match(r"[\w+#.:/{=-]+(?:$|\s)", word) and is_document:
                nested += 1
            elif word and re.fullmatch(r"[\w+#.:/=\"{}-]+(?:\s+\w+=\S+)*", word):
                while lines and (not lines[-1].strip() or name_in(lines[-1])[1]):
                    place -= len(lines.pop())  # the next one's name
                return _dedented(lines, indent), place  # another one begins
            elif nested:
                nested -= 1
            else:
                return _dedented(lines, indent), end
        elif (
            sign[0] == "`"
            and stripped.endswith(sign)
            and stripped.count(sign) == 1
            and not (nested or stripped.startswith("//"))
        ):
            lines.append(line[: line.rindex(sign)].rstrip() + "\n")
            return _dedented(lines, indent), end
        lines.append(line)
        place = end
    return _dedented(lines, indent), place


def _has_other_text(body: str) -> bool:
    """Whether lines that are not code come before the first module of a block."""
    lines = body.splitlines(keepends=True)
    first = next((place for place, line in enumerate(lines) if BEGINS.match(line)), 0)
    before = "".join(lines[:first])
    return bool(_OTHER.search(before)) and not before.rstrip().endswith("*/")


def _dedented(lines: list[str], indent: int) -> str:
    if indent:
        lines = [line[min(indent, len(line) - len(line.lstrip(" \t"))) :] for line in lines]
    return "".join(lines)


def _last_name(lines: list[str]) -> tuple[str, bool]:
    """The file that the last line with a name in it names, and whether it says nothing else."""
    found = (name_in(line) for line in reversed(lines))
    return next((pair for pair in found if pair[0]), ("", False))


def _named_inside(body: str | list[str]) -> str:
    """The file that a comment in the first lines names, without other words; "" for none."""
    lines = body if isinstance(body, list) else body[:2000].splitlines()
    for line in lines[:8]:
        comment = line.strip()
        if comment and not comment.startswith(("//", "/*", "*", "#", "--", "<!--", ";")):
            return ""
        if comment.startswith("#") and re.match(r"#\s*(?:\(|include)", comment):
            return ""
        name, is_sure = name_in(comment)
        if name and is_sure:
            return name
    return ""
