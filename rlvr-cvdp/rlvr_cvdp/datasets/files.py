"""The files of a row: texts at paths inside the tree, where each can be written."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping

from rlvr_cvdp.paths import ANSWER_FOLDERS, answer_path, tree_path

_FOLDERS = (*ANSWER_FOLDERS, "src", "rundir")
_NAME_BYTES = 255
_UNIX = re.compile(r"(^|/)(\.env[^/]*|[^/]*\.env|Dockerfile[^/]*|Makefile[^/]*)$|"
                   r"\.(ya?ml|sh|py|tcl|mk|cfg|ini|toml)$")  # fmt: skip


class RowError(ValueError):
    """A row that yields no problem. `kind` groups reasons where they are counted."""

    def __init__(self, reason: str, kind: str = "not a row") -> None:
        super().__init__(reason, kind)
        self.kind = kind

    def __str__(self) -> str:
        return str(self.args[0])


def texts(files: Mapping[str, str | None]) -> dict[str, str]:
    """
    The files with normalised paths; those that are null are left out.

    Raises:
        RowError: A path leaves the tree, two paths are the same one, or a text is none.
    """
    kept: dict[str, str] = {}
    for path, text in files.items():
        normal = tree_path(path)
        if normal is None:
            raise RowError(f"a file of it lies outside its tree: {path!r}", kind="paths")
        if text is None:
            continue
        if not isinstance(text, str):
            raise RowError(f"its file {path} is not text")
        if kept.get(normal, text) != text:
            raise RowError(f"it names the file {normal} twice", kind="paths")
        kept[normal] = text
    return kept


def target_path(path: str) -> str:
    """
    The normalised path of a file that the policy is to write.

    Raises:
        RowError: Answers may not write there.
    """
    normal = answer_path(path)
    if normal is None:
        reason = f"the file to write lies outside rtl, verif and docs: {path!r}"
        raise RowError(reason, kind="paths")
    return normal


def check_tree(paths: Iterable[str]) -> None:
    """
    Make sure that all of these can be files of one tree.

    Raises:
        RowError: One is the folder of another or of the tree, or has a name that is too long.
    """
    files = set(paths)
    folders = set(_FOLDERS)
    for path in files:
        if any(len(part.encode(errors="replace")) > _NAME_BYTES for part in path.split("/")):
            raise RowError(f"a file of it has a name that is too long: {path[:60]}…", kind="paths")
        folder = posixpath.dirname(path)
        while folder:
            folders.add(folder)
            folder = posixpath.dirname(folder)
    both = sorted(files & folders)
    if both:
        raise RowError(f"{both[0]} is to be a file and a folder", kind="paths")


def unix_lines(harness: Mapping[str, str]) -> dict[str, str]:
    """
    The harness with Unix line ends where others break it: scripts, settings, compose files.

    Other files (Verilog, data that tests compare) keep theirs.
    """
    return {
        path: re.sub(r"\r\n?", "\n", text) if "\r" in text and _UNIX.search(path) else text
        for path, text in harness.items()
    }
