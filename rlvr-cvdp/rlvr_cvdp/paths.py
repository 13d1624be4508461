"""Paths inside a problem's tree: relative, normalised, never outside of it."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path

ANSWER_FOLDERS = ("rtl", "verif", "docs")
VERILOG = (".v", ".sv")
HDL = (*VERILOG, ".vh", ".svh")


def tree_path(path: str) -> str | None:
    """
    The path relative to the problem's root, normalised; None where it leaves the tree.

    `/code/rtl/a.sv`, `./rtl/a.sv` and `rtl//a.sv` are all `rtl/a.sv`.
    """
    text = path.strip().replace("\\", "/").removeprefix("/code/")
    if not text or text.startswith("/") or text[1:2] == ":" or any(ord(c) < 32 for c in text):
        return None
    normal = posixpath.normpath(text)
    if normal in (".", "..") or normal.startswith("../"):
        return None
    # `./` or a last slash may have hidden a drive's letter or a blank at an end.
    return None if normal[1:2] == ":" or normal != normal.strip() else normal


def answer_path(path: str) -> str | None:
    """As `tree_path`, but None also where answers may not write."""
    normal = tree_path(path)
    if normal is None or normal.split("/")[0] not in ANSWER_FOLDERS or "/" not in normal:
        return None
    return normal


def write_texts(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts to their paths below a folder that no other process writes to."""
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8", errors="replace")
