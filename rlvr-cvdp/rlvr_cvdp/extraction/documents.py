"""Finds files in JSON, however a model nested and named them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve

from rlvr_cvdp.extraction.objects import read_object
from rlvr_cvdp.extraction.pieces import Piece, is_path
from rlvr_cvdp.extraction.plain import BEGINS, CODE

Scan = Callable[[str, int, str], list[Piece]]
"""Takes a text apart: the text, how deep it is nested, the file that it was said to be."""
DEEPEST = 6
_LEVELS = 30
_NAME_KEYS = (
    *("path", "file_path", "filePath", "filepath", "filename", "file_name", "fileName", "uri"),
    *("target_file", "file", "name", "title", "relative_path"),
)
_BODY_KEYS = (
    *("content", "contents", "code", "text", "file_text", "fileContent", "file_content", "body"),
    *("source", "source_code", "data", "value", "code_edit", "verilog"),
)


def object_pieces(value: Any, depth: int, scan: Scan) -> list[Piece]:
    """The texts of an object that are files, or code that no key names."""
    found: list[Piece] = []
    _walk(value, "", found, depth, scan)
    named = [piece for piece in found if piece.name]
    return named or found


def _walk(
    value: Any, name: str, found: list[Piece], depth: int, scan: Scan, level: int = 0
) -> None:
    if level > _LEVELS:
        return
    if isinstance(value, str):
        found += _string_pieces(value, name, depth, scan)
    elif isinstance(value, list):
        if value and name and all(isinstance(line, str) for line in value):
            value = "\n".join(line.rstrip("\n") for line in value) + "\n"
            found += _string_pieces(value, name, depth, scan)
        else:
            for item in value:
                _walk(item, name, found, depth, scan, level + 1)
    elif isinstance(value, dict):
        named = next((v for k in _NAME_KEYS if is_path(v := str(value.get(k, "")))), "")
        body = next((k for k in _BODY_KEYS if isinstance(value.get(k), str | list)), "")
        if named and body:
            _walk(value[body], named, found, depth, scan, level + 1)
            return
        for key, part in value.items():
            known = str(key) if is_path(str(key)) else named or name
            _walk(part, known, found, depth, scan, level + 1)


def _string_pieces(text: str, name: str, depth: int, scan: Scan) -> list[Piece]:
    if depth >= DEEPEST or not text.strip():
        return []
    is_document = name.lower().endswith((".md", ".rst", ".txt"))
    stripped = text.strip()
    is_wrapped = stripped.startswith(("```", "~~~")) and stripped.count("```") <= 2
    if ("```" in text or "~~~" in text) and (is_wrapped or not is_document):
        inner = scan(text, depth + 1, name)
        fenced = [piece for piece in inner if piece.where == "fence"] or inner
        if fenced:
            return [evolve(piece, where="JSON") for piece in fenced]
    if not name and stripped[:1] in ("{", "["):
        read = read_object(stripped, 0)
        return object_pieces(read[0], depth + 1, scan) if read else []
    if not name:
        if not CODE.search(text):
            return []
        if not BEGINS.match(stripped) and "\n" in stripped:
            inner = scan(text, depth + 1, "")
            if inner:
                return [evolve(piece, where="JSON") for piece in inner]
    return [Piece(body=text, name=name, is_sure=bool(name), where="JSON")]
