"""A piece of an answer that may be a file, and the name that it was given."""

from __future__ import annotations

import html
import re

from attrs import frozen

_WORD = re.compile(r"[\w./\\+-]+")
_ENDINGS = (
    "v sv vh svh vlt md rst txt py tcl sh bash sdc xdc f yml yaml json mem hex dat c cpp h mk do "
    "ys log csv vhd vhdl toml cfg ini lib lef vcd"
)
_EXTENSIONS = frozenset(_ENDINGS.split())
_DECORATION = re.compile(
    r"(?i)\b(?:file|filename|filepath|file_path|path|name|title|code|the|for|create|update|updated|"
    r"new|modified|save|as|in|final|complete|full|version|here|is|contents?|of|source|design|rtl|"
    r"implementation|corrected|fixed|to|write|systemverilog|verilog|begin|end|start|this|step|"
    r"src|lang|language|target|output|add|edit)\b"
)
_LETTER = re.compile(r"[^\W\d_]")
_NUMBERED = re.compile(r"[ \t]*\d+(?:[ \t]*[|:\u2502][ ]?|\t| {2}|[ \t]*$)")
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|#\d{1,5}|#[xX][0-9a-fA-F]{1,4});")
_ENTITY_NAME = re.compile(r"(?<!&)\b(?:lt|gt|amp|quot)\b")
_INVISIBLE = re.compile("[\ufeff\u200b\u200c\u200d\u2060]")


@frozen(kw_only=True)
class Piece:
    """
    A text that may be a file of the answer.

    Attributes:
        body: The text.
        name: The file that it was said to be, as written; "" where nothing says so.
        is_sure: The name stands by itself (a heading, an attribute, a key), not in a sentence.
        language: The first word after a fence.
        lead: The prose right before it.
        where: What it was: a fence, a tag, JSON, plain text, with its number.
    """

    body: str
    name: str = ""
    is_sure: bool = False
    language: str = ""
    lead: str = ""
    where: str = ""


def paths_in(line: str) -> list[str]:
    """Words of a line that are names of files. Linear, unlike a single pattern."""
    found = []
    for match in _WORD.finditer(line[:1000]):
        word = match[0].rstrip("./-\\").lstrip("-+")
        stem, dot, extension = word.rpartition(".")
        if dot and stem.strip("./\\") and extension.lower() in _EXTENSIONS:
            found.append(word)
    return found


def name_in(line: str) -> tuple[str, bool]:
    """The file that a line names, and whether it says nothing else; ("", False) for none."""
    found = paths_in(line)
    if not found:
        return "", False
    rest = line[:1000].replace(found[0], " ", 1)
    is_sure = len(set(found)) == 1 and not _LETTER.search(_DECORATION.sub(" ", rest))
    return found[0], is_sure


def is_path(text: str) -> bool:
    """Whether a text is the name of a file and nothing else."""
    text = text.strip()
    return 0 < len(text) <= 300 and paths_in(text) == [text]


def tidied(body: str) -> str:
    """The text without a chat's additions to its lines: quote marks, line numbers, entities."""
    body = _INVISIBLE.sub("", body).replace("\u00a0", " ")
    lines = body.split("\n")
    full = [line for line in lines if line.strip()]
    if full and all(line.lstrip().startswith(">") for line in full):
        lines = [re.sub(r"^[ \t]*> ?", "", line) for line in lines]
    elif len(full) > 2 and all(_NUMBERED.match(line) for line in full):
        lines = [_NUMBERED.sub("", line, count=1) for line in lines]
    body = "\n".join(lines)
    if len(full) == 1 and "\\n" in body and re.search(r"\\n\s*(?:end|module|input|assign)", body):
        body = body.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
    if _ENTITY.search(body) and not _ENTITY_NAME.search(_ENTITY.sub(" ", body)):
        body = html.unescape(body)
    return body
