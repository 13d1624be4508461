"""Reads files that a sandbox left: plain files only, never through a link."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path


def is_plain(path: Path, folder: Path | None = None) -> bool:
    """Whether a path is a plain file; with `folder`, also that no link is on the way from there."""
    try:
        is_file = stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False
    if folder is None or not is_file:
        return is_file
    real = os.path.realpath(folder)
    below = os.path.normpath(os.path.join(real, os.path.relpath(path, folder)))
    return below.startswith(f"{real}/") and os.path.realpath(path) == below


def read_plain(path: Path, folder: Path | None = None, most: int = -1) -> str:
    """
    The first `most` bytes of a plain file (see `is_plain`) as text; "" if there is none.

    A link may lead out of the sandbox, and reading a pipe may wait for ever. To be called while
    nothing runs in the sandbox.
    """
    if not is_plain(path, folder):
        return ""
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def read_all(paths: Iterable[Path], most: int = 100_000_000) -> Iterator[str]:
    """The texts of plain files in turn, `most` bytes of all together: a file may have holes."""
    for path in paths:
        text = read_plain(path, most=most)
        most = max(0, most - len(text))
        yield text
