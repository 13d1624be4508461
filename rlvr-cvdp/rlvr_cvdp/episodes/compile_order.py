"""Orders source files: those of an answer, after the files that define what they use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rlvr_cvdp.paths import VERILOG

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL)
_INCLUDE = re.compile(r"`include\s+\"([^\"\n]+)\"")
_DEFINES = re.compile(
    r"(?:\b(?:macromodule|module|interface|package|program|primitive)\s+"
    r"(?:(?:static|automatic)\s+)?|`define\s+)([A-Za-z_]\w*)"
)
_NAME = re.compile(r"[A-Za-z_]\w*")


def sources_of(files: Mapping[str, str], roots: Iterable[str]) -> list[str]:
    """
    The compiled files of `roots`, and those of `files` that define what they use, before them.

    A file that another one includes is no source of its own. Files that nothing uses are left out,
    so that a given file with an error in it does not stand in the way of an answer.
    """
    texts = {
        path: _COMMENT.sub(" ", text) for path, text in files.items() if path.endswith(VERILOG)
    }
    included = {
        name.rpartition("/")[2] for text in files.values() for name in _INCLUDE.findall(text)
    }
    own = [path for path in roots if path in texts and _base(path) not in included]
    defined: dict[str, str] = {}
    for path in [*own, *sorted(texts, key=lambda path: (not path.startswith("rtl/"), path))]:
        if _base(path) not in included:
            for name in _DEFINES.findall(texts[path]):
                defined.setdefault(name, path)
    order: list[str] = []
    seen: set[str] = set()

    def visit(path: str) -> None:
        """Put what a file uses before it."""
        if path not in seen:
            seen.add(path)
            for name in _NAME.findall(texts[path]):
                if name in defined:
                    visit(defined[name])
            order.append(path)

    for path in own:
        visit(path)
    return order


def _base(path: str) -> str:
    return path.rpartition("/")[2]
