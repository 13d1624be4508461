"""Reads files from model text exactly as the official runner does, with its sharp edges."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_BLOCK = re.compile(r"```(?:\w+\n)?(.*?)```", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BROKEN = re.compile(r'\{\s*"response"\s*:\s*"(.*)"\s*\}', re.DOTALL)
_WRAPPED = re.compile(r"\s*```[^\n`]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)


def official_files(text: str, targets: Sequence[str]) -> Mapping[str, str] | None:
    """
    The files that the official runner would write, by the names that the model gave them.

    One target: its text is the first fenced block (closed ones only; `<think>` and what is in it
    count), else the whole text without blanks around it. Several: the JSON object between the
    first `{` and the last `}` after *all control characters are deleted*, raw line breaks too;
    `code` is a list of `{name: text}`. None where that gives no file.
    """
    if len(targets) == 1:
        return {targets[0]: first_block(text) or ("" if has_block(text) else text.strip())}
    document = _document(text)
    if document is None or not isinstance(document.get("code"), list):
        return None
    files: dict[str, str] = {}
    for entry in document["code"]:
        if not isinstance(entry, dict):
            return None
        for name, body in entry.items():
            if isinstance(body, str):
                files[name] = _unwrapped(body)
    return files or None


def official_text(files: Mapping[str, str]) -> str:
    """The text from which `official_files` reads these files: plain text, or JSON."""
    if len(files) == 1:
        return next(iter(files.values()))
    return json.dumps({"code": [{path: text} for path, text in files.items()]})


def has_block(text: str) -> bool:
    """Whether there is a fenced block with both of its fences."""
    return _BLOCK.search(text) is not None


def first_block(text: str) -> str:
    """The text of the first fenced block, "" if there is none."""
    found = _BLOCK.search(text)
    return found[1] if found else ""


def response_text(text: str, *, is_strict: bool) -> str | None:
    """
    The answer in words of `{"response": "..."}`; None where the official runner finds none.

    Unless `is_strict`, an object that is broken by raw line breaks or quotes is still read,
    reasoning up to `</think>` is left out, and text that is no such object is itself the answer.
    """
    if is_strict:
        document = _document(text)
        if document is None or "code" in document:
            return None
        if "response" not in document:
            return str(document)
        response = document["response"]
        return _unwrapped(response) if isinstance(response, str) else None
    text = text.rpartition("</think>")[2]
    start, end = text.find("{"), text.rfind("}")
    for candidate in (text[start : end + 1], _CONTROL.sub("", text[start : end + 1])):
        document = _load(candidate, strict=False) if 0 <= start < end else None
        if isinstance(document, dict) and isinstance(document.get("response"), str):
            return _unwrapped(document["response"])
    broken = _BROKEN.fullmatch(text.strip())
    if broken:
        return broken[1].replace(r"\n", "\n").replace(r"\"", '"')
    wrapped = _WRAPPED.fullmatch(text)
    return (wrapped[1] if wrapped else text).strip()


def _unwrapped(text: str) -> str:
    return first_block(text) if has_block(text) else text


def _document(text: str) -> dict[str, Any] | None:
    text = _CONTROL.sub("", text.strip())
    start, end = text.find("{"), text.rfind("}")
    document = _load(text[start : end + 1], strict=True) if start >= 0 else None
    return document if isinstance(document, dict) else None


def _load(text: str, *, strict: bool) -> Any:
    try:
        return json.loads(text, strict=strict)
    except (ValueError, RecursionError):
        return None
