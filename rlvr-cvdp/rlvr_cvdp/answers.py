"""From what a policy wrote to the files that it may write, and to nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from rlvr.types import FrozenMap
from rlvr_cvdp.official_parsing import official_files
from rlvr_cvdp.paths import answer_path, tree_path

_FENCE = re.compile(r"```([^\n`]*)\n(.*?)(?:\n[ \t]*```|```|\Z)", re.DOTALL)
_INLINE = re.compile(r"```(.*?)```", re.DOTALL)
_WORD = re.compile(r"[\w./-]+")
_EXTENSION = re.compile(r"\w+")
_CODE = re.compile(r"\b(module|interface|package|program|primitive|`define)\b|`define")
_HDL = (".v", ".sv", ".vh", ".svh")
_HEADER = re.compile(r"\b(parameter|localparam|typedef|function|task)\b|`(ifn?def|include)\b")


@frozen(kw_only=True)
class Answer:
    """
    The files of an answer: declared targets only, path to text.

    `ignored` names what else was offered; it is never written. `why_none` says why there is no
    file at all.
    """

    files: Mapping[str, str] = field(factory=dict, converter=FrozenMap)
    ignored: tuple[str, ...] = ()
    why_none: str = ""


def from_files(files: Mapping[str, str], targets: Sequence[str]) -> Answer:
    """An answer that was given as files."""
    kept, ignored = {}, []
    for path, text in files.items():
        normal = answer_path(path)
        if normal in targets and isinstance(text, str) and text.strip() and normal is not None:
            if normal not in kept or path == normal:
                kept[normal] = text
        else:
            ignored.append(path)
    why = "" if kept else "it holds none of the files to write"
    return Answer(files=kept, ignored=tuple(ignored), why_none=why)


def from_official_text(text: str, targets: Sequence[str]) -> Answer:
    """
    As the official runner reads it (`official_parsing`), declared targets only.

    A text that gives no file is no answer; the official runner would judge the untouched context.
    """
    found = official_files(text, targets) or {}
    kept = {path: body for path, body in found.items() if path in targets}
    ignored = tuple(path for path in found if path not in targets)
    if not any(_is_code(path, body) for path, body in kept.items()):
        return Answer(ignored=ignored, why_none="it holds no code")
    return Answer(files=kept, ignored=ignored)


def from_text(text: str, targets: Sequence[str]) -> Answer:
    """
    An answer that was given as raw model text.

    Read in this order: the official JSON forms (`{"code": [{name: text}]}` and, for one target,
    `{"response": text}`); fenced blocks that name their file, in the fence's first line, in the
    line before it or in a comment on the first line; for one target the first fenced block; for
    several the block that defines the module a target is named after; for one target the whole
    text where it is code. A last fence that was cut off counts up to the end of the text.
    Everything up to a `</think>` is left out.
    """
    text = text.rpartition("</think>")[2]
    named = _json_files(text, targets)
    if named:
        answer = from_files(named, targets)
        if answer.files:
            return answer
    blocks = list(_blocks(text, targets))
    found: dict[str, str] = {}
    ignored = []
    for name, body in blocks:
        if name and name in targets:
            found.setdefault(name, body)
        elif name:
            ignored.append(name)
    if len(targets) == 1 and not found:
        unnamed = [body for name, body in blocks if not name]
        whole = _unfenced(text)
        if unnamed:
            found[targets[0]] = unnamed[0]
        elif whole and not blocks:
            found[targets[0]] = whole
    else:
        for target in targets:
            for name, body in blocks:
                if target not in found and not name and _defines(body, target):
                    found[target] = body
    kept = {path: _ended(body) for path, body in found.items() if _is_code(path, body)}
    why = "" if kept else "it holds no code"
    return Answer(files=kept, ignored=tuple(ignored), why_none=why)


def _ended(body: str) -> str:
    return body if body.endswith("\n") else body + "\n"


def _is_code(path: str, body: str) -> bool:
    if not path.endswith(_HDL):
        return bool(body.strip())
    is_header = path.endswith((".vh", ".svh"))
    return bool(_CODE.search(body) or (is_header and _HEADER.search(body)))


def _defines(body: str, target: str) -> bool:
    stem = re.escape(target.rsplit("/", 1)[-1].split(".")[0])
    return bool(re.search(rf"\b(module|package|interface)\s+{stem}\b", body))


def _unfenced(text: str) -> str:
    inline = _INLINE.search(text)
    return (inline[1] if inline else text).strip()


def _blocks(text: str, targets: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Fenced blocks in order: the file they name ("" for none) and their text."""
    for match in _FENCE.finditer(text):
        body = match[2]
        before = text[: match.start()].rstrip().rpartition("\n")[2]
        first, _, _ = body.lstrip().partition("\n")
        comment = first if first.startswith(("//", "/*", "#")) else ""
        for place in (match[1], before, comment):
            name = _named(place, targets)
            if name:
                break
        yield name, body


def _named(place: str, targets: Sequence[str]) -> str:
    """The path that a line names, where it is one of the tree or the base name of a target."""
    for word in _paths(place):
        normal = tree_path(word)
        if normal in targets:
            return str(normal)
        same = [target for target in targets if target.rsplit("/", 1)[-1] == word]
        if same:
            return same[0]
        if normal and "/" in normal and normal.split("/")[0] in ("rtl", "verif", "docs", "src"):
            return normal
    return ""


def _paths(place: str) -> Iterator[str]:
    """Words with an extension. No single pattern: on a long word that would take its square."""
    for match in _WORD.finditer(place):
        stem, dot, end = match[0].rstrip("./-").rpartition(".")
        extension = _EXTENSION.match(end)
        if dot and stem and extension:
            yield f"{stem}.{extension[0]}"


def _json_files(text: str, targets: Sequence[str]) -> dict[str, str]:
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start or '"' not in text:
        return {}
    document = _load(text[start : end + 1])
    if not isinstance(document, dict):
        return {}
    entries = document.get("code")
    entries = entries if isinstance(entries, list) else [entries]
    files = {
        str(name): _unwrapped(body)
        for entry in entries
        if isinstance(entry, dict)
        for name, body in entry.items()
        if isinstance(body, str)
    }
    response = document.get("response")
    if not files and len(targets) == 1 and isinstance(response, str):
        files = {targets[0]: _unwrapped(response)}
    return files


def _load(text: str) -> Any:
    for candidate in (text, re.sub(r"[\x00-\x1f\x7f]", "", text)):
        try:
            return json.loads(candidate, strict=False)
        except (ValueError, RecursionError):  # no JSON; nested too deep
            continue
    return None


def _unwrapped(body: str) -> str:
    match = _FENCE.search(body)
    return _ended(match[2] if match else body)
