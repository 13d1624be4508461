"""The files that an agent works on: kept in memory, so there is nothing to escape to."""

from __future__ import annotations

import re
from collections.abc import Mapping

FOLDERS = ("rtl", "verif", "docs", "rundir")
MAX_FILE = 200_000
"""Characters of a file."""
MAX_FILES = 200
"""Files in a tree, the given ones not counted."""
MAX_TOTAL = 2_000_000
"""Characters of all files that an agent wrote."""

_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)+")


class RefusedError(ValueError):
    """An action that may not be done; the text says why, in words for the policy."""


class WorkTree:
    """
    Files by path, and the four things that an agent may do to them.

    No file of the machine is behind it: a link, a folder above or an absolute path has nothing to
    point to. Paths are `FOLDER/NAME...` with FOLDER one of rtl, verif, docs, rundir; `/code/` in
    front, the tree's place in the sandbox, may be written and is left out.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = dict(given)
        self._files = dict(given)

    @property
    def files(self) -> dict[str, str]:
        """All files as they stand."""
        return dict(self._files)

    def written(self) -> dict[str, str]:
        """The files that are not as they were given."""
        return {p: text for p, text in self._files.items() if self._given.get(p) != text}

    def listing(self) -> list[str]:
        """`path (N lines)`, sorted."""
        return [f"{path} ({_lines(text)} lines)" for path, text in sorted(self._files.items())]

    def read(self, path: str, first: int = 1, last: int | None = None) -> list[str]:
        """
        Lines of a file with their numbers, counted from 1, both ends included.

        Raises:
            RefusedError: There is no such file, or no such line.
        """
        text = self._existing(path)
        lines = text.split("\n")[: _lines(text)]
        if not 1 <= first <= max(1, len(lines)) or (last is not None and last < first):
            raise RefusedError(f"lines {first}-{last or ''} were asked for, it has {len(lines)}")
        return [f"{n}: {line}" for n, line in enumerate(lines[first - 1 : last], start=first)]

    def write(self, path: str, text: str) -> None:
        """
        Make a file, or replace all of it.

        Raises:
            RefusedError: The path is outside the folders, or a limit would be passed.
        """
        name = checked_path(path)
        text = text.encode(errors="replace").decode()
        if len(text) > MAX_FILE:
            raise RefusedError(f"a file may have {MAX_FILE} characters, this one has {len(text)}")
        others = {p: t for p, t in self.written().items() if p != name}
        if len(others) >= MAX_FILES:
            raise RefusedError(f"at most {MAX_FILES} files may be written")
        if sum(map(len, others.values())) + len(text) > MAX_TOTAL:
            raise RefusedError(f"all files together may have {MAX_TOTAL} characters")
        for other in self._files:
            if other.startswith(f"{name}/"):
                raise RefusedError(f"{name} is a folder")
            if name.startswith(f"{other}/"):
                raise RefusedError(f"{other} is a file, not a folder")
        self._files[name] = text

    def replace(self, path: str, old: str, new: str) -> None:
        """
        Put `new` where `old` stands in a file, exactly once.

        Raises:
            RefusedError: `old` is not there, or more than once.
        """
        text = self._existing(path)
        count = text.count(old) if old else 0
        if count != 1:
            found = f"is there {count} times" if count else "is not in the file, blanks included"
            raise RefusedError(f"the text to replace {found}")
        self.write(path, text.replace(old, new))

    def _existing(self, path: str) -> str:
        name = checked_path(path, to_write=False)
        if name not in self._files:
            raise RefusedError(f"there is no file {name}")
        return self._files[name]


def checked_path(path: str, *, to_write: bool = True) -> str:
    """
    The path inside the tree.

    Raises:
        RefusedError: It is absolute, goes up, has odd characters or is in none of the folders.
    """
    name = path.strip().removeprefix("/code/")
    if not to_write and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        return name  # a given file beside the folders
    if not _PATH.fullmatch(name) or ".." in name or name.partition("/")[0] not in FOLDERS:
        folders = ", ".join(f"{folder}/" for folder in FOLDERS)
        raise RefusedError(f"{path.strip()[:80]!r} is not a path below {folders}")
    return name


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n")) if text else 0
