"""Compiles in the place of iverilog, and says how that went.

Takes the compiled simulation away where it could reach beyond the design (scan.py): it never runs
then. Nor does what an earlier compilation left in the place of one that failed. Standard library
only; runs inside the sandbox, as a program or in a fork of the warm worker.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

if __name__ == "__main__":  # an isolated Python does not look beside the program
    sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), "/rlvr"]

from rlvr_record import Record
from rlvr_seal import seal

REAL = "/rlvr/real/iverilog"
OUT = "/rlvr/out"
REFUSED = 96
SOURCE = re.compile(r"\.s?vh?$")


def build(arguments: Sequence[str], environment: Mapping[str, str], scan: Any) -> int:
    """
    Compile as `iverilog arguments` would; gives the exit status. `scan` is scan.py.

    The simulation is written under another name, and gets its own when it was looked through.
    """
    place = simulation_of(arguments)
    made = f"{place}.{os.getpid()}.rlvr"
    with contextlib.suppress(OSError):
        os.unlink(place)
    said = f"{OUT}/{os.getpid()}.build"
    with open(said, "wb") as file:
        done = subprocess.run(
            [REAL, "-o", made, *without_output(arguments)],
            stdin=subprocess.DEVNULL,
            stderr=file,
            env=dict(environment),
            check=False,
        )
    with open(said, "rb") as file:
        words = file.read()
    with contextlib.suppress(OSError):
        os.write(2, words)
    code = 128 - done.returncode if done.returncode < 0 else done.returncode
    how, found = "ok", []
    if code > 128:
        how = f"killed {code}"
    elif code:
        how = "elaboration" if b"error(s) during elaboration" in words else "syntax"
    elif os.path.isfile(made):
        found = _looked_through(scan, made, arguments)
        if found:
            how, code = "refused", REFUSED
            print("refused: " + "; ".join(found), file=sys.stderr, flush=True)
        else:
            os.replace(made, place)
    with contextlib.suppress(OSError):
        os.unlink(made)
    record = Record()
    record.note("build", {"how": how, "refused": found})
    record.close()
    return code


def _looked_through(scan: Any, made: str, arguments: Sequence[str]) -> list[str]:
    try:
        return findings(scan, made, arguments)
    except Exception as error:  # out of memory, or an unforeseen text
        return [f"cannot be looked through: {type(error).__name__}"]


def _given_texts(arguments: Sequence[str]) -> dict[str, str]:
    """Sources among iverilog's arguments that the answer did not write, with their text."""
    answer = _answer()
    given = {}
    for path in arguments:
        is_source = SOURCE.search(path) and not path.startswith("-")
        if is_source and os.path.realpath(path) not in answer:
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    given[path] = file.read()
            except OSError:
                continue
    return given


def _answer() -> set[str]:
    """The files that the answer wrote."""
    with open("/rlvr/answer", encoding="utf-8") as file:
        return {os.path.realpath(line.strip()) for line in file if line.strip()}


def _tree_files() -> set[str]:
    """Files of the problem's tree that an answer is shown or wrote; links are left out."""
    found = set()
    for top in ("rtl", "verif", "docs"):
        for folder, _, names in os.walk(f"/code/{top}"):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.isfile(path) and os.path.realpath(path) == path:
                    found.add(path.removeprefix("/code/"))
    return found


def _can_lie(arguments: Sequence[str]) -> bool:
    """Whether some text, once macros are gone, claims with `line to stand in another file."""
    with tempfile.NamedTemporaryFile() as text:
        tried = subprocess.run(
            [REAL, *without_output(arguments), "-E", "-o", text.name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return tried.returncode != 0 or b"`line" in text.read()


def simulation_of(arguments: Sequence[str]) -> str:
    """The file that iverilog writes when it is called with these arguments."""
    name = "a.out"
    for place, word in enumerate(arguments):
        if word == "-o":
            name = arguments[place + 1] if place + 1 < len(arguments) else name
        elif word.startswith("-o"):
            name = word[2:]
    return name


def without_output(arguments: Sequence[str]) -> list[str]:
    """The arguments without those that name the file to write."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "-o":
            next(words, "")
        elif not word.startswith("-o"):
            kept.append(word)
    return kept


def findings(scan: Any, simulation: str, arguments: Sequence[str]) -> list[str]:
    """
    Why a simulation that iverilog made of these arguments must not run; none where it may.

    What the problem's own files write under a name that does not stand in them is made to go to a
    private folder (rlvr_seal.py).
    """
    with open("/rlvr/allowed", encoding="utf-8") as file:
        allowed = file.read().split()
    readable = _tree_files()
    given: dict[str, str] = {}
    trusted: dict[str, set[str]] = {}
    with open(simulation, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        lines = file.readlines()
    found = scan.scan(lines, trusted, allowed, readable)
    if (found or scan.quieted(lines, trusted, allowed) != lines) and not _can_lie(arguments):
        given = _given_texts(arguments)
        trusted = {path: scan.tasks_of(text) for path, text in given.items()}
        found = scan.scan(lines, trusted, allowed, readable, _answer())
    if found:
        return found
    changed = scan.quieted(lines, trusted, allowed)
    if changed != lines:
        with open(
            simulation, "w", encoding="utf-8", errors="surrogateescape", newline="\n"
        ) as file:
            file.writelines(changed)
    if given:
        seal(simulation, given, scan.HARMLESS | set(allowed))
    return []


if __name__ == "__main__":
    import scan as scanner

    sys.exit(build(sys.argv[1:], os.environ, scanner))
