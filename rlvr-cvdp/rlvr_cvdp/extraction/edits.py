"""Answers that change the given files: diffs, search and replace, and the patches of agents."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import frozen

from rlvr_cvdp.extraction.pieces import name_in

IS_EDIT = re.compile(
    r"(?m)^[ \t]*(?:@@|<{5,9} ?SEARCH|-{5,9} ?SEARCH|\*\*\* (?:Begin Patch|Update File|Add File))"
)
_SEARCH = re.compile(r"[ \t]*(?:<{5,9}|-{5,9}) ?SEARCH\b")
_MIDDLE = re.compile(r"[ \t]*={5,9}[ \t]*\r?$")
_REPLACE = re.compile(r"[ \t]*(?:>{5,9}|\+{5,9}) ?REPLACE\b")
_FILE = re.compile(r"(?:\+\+\+ (?:b/)?|\*\*\* (?:Update|Add) File: |diff --git a/\S+ b/)([^\s]+)")
_OTHER_FILE = re.compile(r"(?:--- |\+\+\+ |diff --git |\*\*\* |index [0-9a-f]|```|~~~|</)")
_STRINGS = r"(\"(?:[^\"\\]|\\.)*\")"
_STR_REPLACE = re.compile(
    rf"\"path\"\s*:\s*{_STRINGS}\s*,\s*\"old_str\"\s*:\s*{_STRINGS}\s*,\s*\"new_str\"\s*:\s*{_STRINGS}"
)
_MOST = 500


@frozen(kw_only=True)
class Edit:
    """Lines of a file that others take the place of; no old lines: the whole of a new file."""

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
    if not IS_EDIT.search(text) and "old_str" not in text:
        return {}
    files: dict[str, str] = {}
    failed: set[str] = set()
    for edit in list(_edits(text))[:_MOST]:
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


def _edits(text: str) -> Iterator[Edit]:
    for match in _STR_REPLACE.finditer(text):
        path, old, new = (json.loads(part, strict=False) for part in match.groups())
        yield Edit(name=path, old=(old,), new=(new,))
    lines = text.splitlines()
    name, place = "", 0
    while place < len(lines):
        line = lines[place]
        place += 1
        if found := _FILE.match(line):
            name = found[1]
            if line.startswith("*** Add File"):
                body, place = _marked(lines, place)
                yield Edit(name=name, old=(), new=tuple(new[1:] for new in body))
            elif line.startswith("*** Update"):
                body, end = _marked(lines, place)
                if body:
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
        elif line.startswith("@@"):
            body, place = _marked(lines, place)
            yield _hunk(name, body)
        elif named := name_in(line)[0]:
            name = named


def _marked(lines: Sequence[str], place: int) -> tuple[list[str], int]:
    """The lines of a hunk: those that begin with a blank, a plus or a minus."""
    begin = place
    while place < len(lines):
        line = lines[place]
        if (
            line.startswith("@@")
            or _OTHER_FILE.match(line)
            or line[:1] not in (" ", "+", "-", "", "\\")
        ):
            break
        place += 1
    return list(lines[begin:place]), place


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
    while place < len(lines) and not pattern.match(lines[place]):
        place += 1
    return place


def _applied(base: str, edit: Edit) -> str | None:
    """The text after an edit, None where its old lines are not there."""
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
        if (
            stripped[place] in (wanted[0], first)
            and stripped[place : place + len(wanted)] == wanted
        ):
            return "\n".join([*lines[:place], *edit.new, *lines[place + len(wanted) :]])
    return None
