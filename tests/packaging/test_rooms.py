"""The house can be walked: rooms of few files with a sentence each, short files, no circles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [
    ROOT / "core" / "rlvr",
    *sorted(p.parent for p in ROOT.glob("plugins/rlvr-*/rlvr_*/plugin.py")),
    *sorted(p.parent for p in ROOT.glob("rlvr-*/rlvr_*/plugin.py")),
]
MOST_FILES = 16
MOST_LINES = 350
LARGE = {"rlvr.cli", "rlvr.testing"}  # one file a command, one a kind of part
CROWDED: set[str] = set()
"""Rooms that are still to be divided; none may be added."""
LONG: set[str] = set()
"""Files that are still to be divided; none may be added."""
RETIRED = {
    "Ledger", "Lane", "Seats", "StopWatch", "Crew", "Draws", "Shelf", "Laid", "Caller", "Dialect",
    "Cage", "Desk", "Workbench", "Board", "Feed", "Order", "Stream", "Student", "Draft", "Ring",
    "RowCache", "Sight", "Seeing", "Exchange", "Noticing", "Watchful", "Selective", "Telling",
    "TokenCredit", "Weighing", "Answering", "Revealing", "Recorded", "Opinionated", "Sparing",
    "Continuing", "Portable", "Appraising", "Spelling", "Picture", "States", "Question", "Ask",
    "Figure", "Cut", "Extent", "Pieces", "Places", "Projection", "Watch", "Judge", "_Judge",
}  # fmt: skip
"""Words of ours for which the field has terms: no class bears them."""


def _name(package: Path, path: Path) -> str:
    return ".".join(path.relative_to(package.parent).with_suffix("").parts)


def _files(package: Path) -> dict[str, Path]:
    return {
        _name(package, path).removesuffix(".__init__"): path
        for path in sorted(package.rglob("*.py"))
    }


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_rooms_are_small_and_say_what_they_hold(package: Path) -> None:
    """At most `MOST_FILES` modules a folder, and a sentence in its `__init__.py`."""
    crowded, silent = set(), set()
    for folder in {path.parent for path in package.rglob("*.py")}:
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        if len(modules) > MOST_FILES:
            crowded.add(_name(package, folder))
        door = folder / "__init__.py"
        if door.exists() and not (ast.get_docstring(ast.parse(door.read_text())) or "").strip("."):
            silent.add(_name(package, folder))
    assert crowded - LARGE <= CROWDED
    assert not silent


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_files_are_short(package: Path) -> None:
    """At most `MOST_LINES` lines."""
    long = {n for n, p in _files(package).items() if len(p.read_text().splitlines()) > MOST_LINES}
    assert long <= LONG


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_files_import_each_other_in_a_circle(package: Path) -> None:
    """Imports within functions and for type checkers count too."""
    arrows = dict(_arrows(package))
    assert [file for file in arrows if _reaches(arrows, file, file)] == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_retired_words_stay_retired(package: Path) -> None:
    """No class is called by a word of ours where the field has a term."""
    classes = {
        node.name
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    assert not classes & RETIRED


def _arrows(package: Path) -> Iterator[tuple[str, set[str]]]:
    files = _files(package)
    for name, path in files.items():
        if name == package.name:  # the public door names all rooms, for type checkers alone
            yield name, set()
            continue
        found = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= inner & set(files) or {node.module}
        yield name, found & set(files) - {name}


def _reaches(arrows: dict[str, set[str]], start: str, goal: str) -> bool:
    seen: set[str] = set()
    left = [*arrows[start]]
    while left:
        name = left.pop()
        if name == goal:
            return True
        if name not in seen:
            seen.add(name)
            left += arrows[name]
    return False
