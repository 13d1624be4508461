"""Reads the Python of a harness: its imports, cocotb generation, and how it builds."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

_ALWAYS_THERE = {"cocotb", "cocotb_tools", "pytest", "_pytest", "find_libpython", "pluggy"}
_PLAIN_BUILD = {
    "sources", "verilog_sources", "hdl_toplevel", "always", "clean", "waves", "verbose",
    "timescale", "log_file", "build_dir", "parameters",
}  # fmt: skip


def _imports(node: ast.AST) -> Iterator[str]:
    """Dotted names that must be importable; those inside a `try` may fail."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Try) or not isinstance(child, ast.stmt | ast.match_case):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            yield child.module
        else:
            yield from _imports(child)


@lru_cache(maxsize=1024)  # problems share scripts, and a data set is read more than once
def _imports_of(text: str) -> frozenset[str]:
    try:
        return frozenset(_imports(ast.parse(text)))
    except SyntaxError:
        return frozenset()  # pytest will say so


def _imported(harness: Mapping[str, str]) -> set[str]:
    scripts = [text for path, text in harness.items() if path.endswith(".py")]
    return set().union(*map(_imports_of, scripts))


def needed_packages(harness: Mapping[str, str]) -> tuple[str, ...]:
    """
    Modules that the harness imports and that neither Python, cocotb, pytest nor itself provides.

    Names of the shared namespace `cocotbext` keep two parts (`cocotbext.axi`).
    """
    own = {part.removesuffix(".py") for path in harness for part in path.split("/")}
    needed = set()
    for name in _imported(harness):
        parts = name.split(".")
        top = parts[0]
        if top in sys.stdlib_module_names or top in own or top in _ALWAYS_THERE:
            continue
        needed.add(".".join(parts[:2]) if top == "cocotbext" else top)
    return tuple(sorted(needed))


def cocotb_generation(harness: Mapping[str, str]) -> int:
    """1 where the harness was written for cocotb 1.x (its runner import or its pin says so)."""
    texts = [text for path, text in harness.items() if path.endswith(".py")]
    if any("cocotb_tools" in text for text in texts):
        return 2
    pinned = re.compile(r"pip3?\s+install[^\n]*\bcocotb\s*==\s*1\.")
    if any("Dockerfile" in path and pinned.search(text) for path, text in harness.items()):
        return 1
    return 1 if "cocotb.runner" in _imported(harness) else 2


def has_python(harness: Mapping[str, str]) -> bool:
    """Whether there is any Python to run."""
    return any(path.endswith(".py") and text.strip() for path, text in harness.items())


def _scripts(argv: Sequence[str], harness: Mapping[str, str]) -> list[str]:
    paths = re.findall(r"(?:/code/|/|\./|\b)(src/[\w./-]+\.py)", " ".join(argv))
    return [harness[path] for path in paths if path in harness]


def runs_cocotb(argv: Sequence[str], harness: Mapping[str, str]) -> bool:
    """Whether the command must launch a simulation; True unless its scripts show otherwise."""
    scripts = _scripts(argv, harness)
    return not scripts or any("cocotb" in text for text in scripts)


def uses_tool(argv: Sequence[str], harness: Mapping[str, str]) -> str:
    """The tool that the command's scripts call: "yosys", "verilator" or ""."""
    text = " ".join([*argv, *_scripts(argv, harness)])
    for tool in ("yosys", "verilator"):
        if re.search(rf"""(?<![\w.$-]){tool}(?![\w.-]|/)""", text):
            return tool
    return ""


def has_plain_build(argv: Sequence[str], harness: Mapping[str, str]) -> bool:
    """
    Whether every build takes its sources from `VERILOG_SOURCES` and nothing else.

    Only then may a syntax error that is found before the harness runs stand for its verdict:
    defines, include folders or further sources could make the same text parse.
    """
    scripts = _scripts(argv, harness)
    if len(scripts) != 1 or "VERILOG_SOURCES" not in scripts[0]:
        return False
    try:
        tree = ast.parse(scripts[0])
    except SyntaxError:
        return False
    nodes = list(ast.walk(tree))
    texts = [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    calls = [n for n in nodes if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "build"]
    names_a_source = any(re.search(r"\.s?vh?\b", text) for text in texts)
    is_plain = all(not c.args and {k.arg for k in c.keywords} <= _PLAIN_BUILD for c in calls)
    return bool(calls) and is_plain and not names_a_source
