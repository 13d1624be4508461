"""Writes a problem's tree for one verification: context, then the answer, then the harness."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.sandbox.folders.tidy import clear

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_PLUSARGS = "$test$plusargs $value$plusargs"


def write_tree(folder: Path, problem: CvdpProblem, files: Mapping[str, str]) -> None:
    """
    Fill a slot's folder (made by `sandbox.folders.root`): `tree` and the scan's lists.

    `files` holds declared targets only (see `answers`). The harness comes last, so that nothing
    of an answer can stand in its place. The reference is not written. What a command left in the
    tree is not written through, be it a link, a pipe or a closed folder.

    Raises:
        OSError: A file cannot be written.
    """
    for group in (problem.context, files, problem.harness):
        for path, text in group.items():
            _write_inside(folder / "tree", path, text)
    (folder / "answer").write_text("".join(f"/code/{path}\n" for path in files))
    (folder / "allowed").write_text(_PLUSARGS if _asks_for_plusargs(problem) else "")


def _write_inside(tree: Path, path: str, text: str) -> None:
    """Write a new file below a folder, in the place of whatever stands on the way to it."""
    *folders, name = PurePosixPath(path).parts
    handle = os.open(tree, _FOLDER)
    try:
        for folder in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, dir_fd=handle)
            try:
                below = os.open(folder, _FOLDER, dir_fd=handle)
            except PermissionError:  # a folder that was closed; for root none is
                os.chmod(folder, 0o700, dir_fd=handle)
                below = os.open(folder, _FOLDER, dir_fd=handle)
            except NotADirectoryError:  # a link leads to no folder here
                os.unlink(folder, dir_fd=handle)
                os.mkdir(folder, dir_fd=handle)
                below = os.open(folder, _FOLDER, dir_fd=handle)
            if os.fstat(below).st_mode & 0o755 != 0o755:  # the sandbox's user is to read it
                os.fchmod(below, 0o755)
            os.close(handle)
            handle = below
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=handle)
        except IsADirectoryError:
            clear(f"/proc/self/fd/{handle}/{name}")
            os.rmdir(name, dir_fd=handle)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
        made = os.open(name, flags, 0o666, dir_fd=handle)
        with open(made, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    finally:
        os.close(handle)


def _asks_for_plusargs(problem: CvdpProblem) -> bool:
    return any("plusargs" in text for text in (problem.prompt, *problem.context.values()))
