"""Answers that change the given files: diffs, search and replace, and the patches of agents."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice

from attrs import frozen

from rlvr_cvdp.extraction.objects import read_object
from rlvr_cvdp.extraction.pieces import Piece, is_path, name_in

IS_EDIT = re.compile(
    r"(?m)^[ \t]*(?:@@|<{5,9} ?[A-Z]|-{5,9} ?SEARCH|\*\*\* (?:Begin Patch|Update File|Add File)"
    r"|\+\+\+ [\w./])"
)
_DIFF = re.compile(r"(?m)^[ \t]*(?:`{3,9}|~{3,9})[ \t]*(?:diff|patch|udiff)\b")
_SEARCH = re.compile(r"[ \t]*(?:<{5,9} ?[A-Z]|-{5,9} ?SEARCH\b)")
_MIDDLE = re.compile(r"[ \t]*={5,9}[ \t]*\r?$")
_REPLACE = re.compile(r"[ \t]*(?:>{5,9} ?\w|\+{5,9} ?REPLACE\b)")
_CHANGED = re.compile(r"(?m)^[ \t]*[+-]")
_FILE = re.compile(r"(?:\+\+\+ (?:b/)?|\*\*\* (?:Update|Add) File: |diff --git a/\S+ b/)([^\s]+)")
_OTHER_FILE = re.compile(r"(?:--- |\+\+\+ |diff --git |\*\*\* |index [0-9a-f]|```|~~~|</)")
_CALL = re.compile(
    r"\{\s*[\"'][^{}]{0,2000}?[\"']old_str(?:ing)?[\"']\s*:|\{\s*[\"']old_str(?:ing)?[\"']\s*:"
)
_MOST, _MOST_CALLS = 500, 50


@frozen(kw_only=True)
class Edit:
    """Replaces old lines of a file by new ones; without old lines it is a whole new file."""

    name: str
    old: tuple[str, ...]
    new: tuple[str, ...]


def edited(
    text: str, initial: Mapping[str, str], target_of: Callable[[str], str]
) -> dict[str, str]:
    """
    The files that the edits of a message give, path to text.

    Args:
        text: The message.
        initial: The given text of each file to write; "" for one that is new.
        target_of: The path that a name means, "" for none; of "" the only target.

    A file of which one edit does not fit is left out: a part of the changes is no answer.
    """
    if not (IS_EDIT.search(text) or _DIFF.search(text) or "old_str" in text):
        return {}
    known = frozenset(line.strip() for given in initial.values() for line in given.splitlines())
    files: dict[str, str] = {}
    failed: set[str] = set()
    for edit in islice(_edits(text, known), _MOST):
        path = target_of(edit.name)
        if not path or path in failed:
            continue
        base = files.get(path, initial.get(path, ""))
        changed = _applied(base, edit)
        if changed is None:
            failed.add(path)
            files.pop(path, None)
        else:
            files[path] = changed
    return files


def is_edit(piece: Piece) -> bool:
    """Whether a piece holds changes of a file, not a file."""
    return bool(IS_EDIT.search(piece.body)) or (
        piece.language in ("diff", "patch", "udiff") and bool(_CHANGED.search(piece.body))
    )


def _edits(text: str, known: Collection[str]) -> Iterator[Edit]:
    """The edits of a text; `known` are the stripped lines of the given files."""
    for match in list(islice(_CALL.finditer(text), _MOST_CALLS)):
        read = read_object(text, match.start())
        call = read[0] if read and isinstance(read[0], dict) else {}
        old, new = (call.get(f"{word}_str", call.get(f"{word}_string")) for word in ("old", "new"))
        named = next((v for v in call.values() if isinstance(v, str) and is_path(v)), "")
        if isinstance(old, str) and isinstance(new, str):
            yield Edit(name=named, old=(old,), new=(new,))
    lines = text.splitlines()
    name, place = "", 0
    while place < len(lines):
        line = lines[place]
        place += 1
        if found := _FILE.match(line):
            name = found[1]
            if line.startswith("*** Add File"):
                body, place = _marked(lines, place, ())
                yield Edit(name=name, old=(), new=tuple(new[1:] for new in body))
                continue
        is_head = line.startswith(("+++ ", "*** Update")) or _DIFF.match(line)
        if is_head or line.startswith("@@"):
            body, end = _marked(lines, place, known)
            if any(line[0] in "+-" for line in body):
                yield _hunk(name, body)
                place = end
        elif _SEARCH.match(line):
            middle = _next(lines, place, _MIDDLE)
            end = _next(lines, middle + 1, _REPLACE)
            if end < len(lines):
                yield Edit(
                    name=name, old=tuple(lines[place:middle]), new=tuple(lines[middle + 1 : end])
                )
            place = end + 1
        elif named := name_in(line)[0]:
            name = named


def _marked(lines: Sequence[str], place: int, known: Collection[str]) -> tuple[list[str], int]:
    """The lines of a hunk, each with its mark; an unchanged line may lack its leading blank."""
    found: list[str] = []
    while place < len(lines) and not lines[place].startswith("@@"):
        line = lines[place] or " "
        if _OTHER_FILE.match(line):
            break
        if line[0] not in " +-\\\t":
            if line.strip() not in known:
                break
            line = f" {line}"
        found.append(line)
        place += 1
    return found, place


def _hunk(name: str, body: Sequence[str]) -> Edit:
    lines = [line for line in body if not line.startswith("\\")]
    while lines and not lines[-1].strip():
        lines.pop()
    return Edit(
        name=name,
        old=tuple(line[1:] for line in lines if not line.startswith("+")),
        new=tuple(line[1:] for line in lines if not line.startswith("-")),
    )


def _next(lines: Sequence[str], place: int, pattern: re.Pattern[str]) -> int:
    return next((i for i in range(place, len(lines)) if pattern.match(lines[i])), len(lines))


def _applied(base: str, edit: Edit) -> str | None:
    """The text after an edit, None if its old lines are not in it."""
    if not "".join(edit.old).strip():
        new = "\n".join(edit.new) + "\n"
        return new if not base.strip() else None
    old = "\n".join(edit.old)
    if base.count(old) >= 1:
        return base.replace(old, "\n".join(edit.new), 1)
    lines, wanted = base.split("\n"), [line.strip() for line in edit.old]
    stripped = [line.strip() for line in lines]
    first = next((line for line in wanted if line), "")
    for place in range(len(lines) - len(wanted) + 1):
        end = place + len(wanted)
        if stripped[place] in (wanted[0], first) and stripped[place:end] == wanted:
            return "\n".join([*lines[:place], *edit.new, *lines[end:]])
    return None
