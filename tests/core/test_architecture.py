"""The rules that keep the arrows pointing inward."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import rlvr
from rlvr.plugins.discovery import GROUP
from rlvr.plugins.known import PLUGINS

CORE = Path(rlvr.__file__).parent
TINKER = Path(__file__).parents[2] / "plugins" / "rlvr-tinker" / "rlvr_tinker"
HEAVY = ("torch", "tinker", "docker", "cocotb", "chess", "transformers", "safetensors", "ray")
FIRST_PARTY = {"rlvr", *PLUGINS.values()}
ENTRIES = [
    (entry.dist.name, entry.value)
    for entry in metadata.entry_points(group=GROUP)
    if entry.dist is not None and entry.dist.name in FIRST_PARTY
]


def imported_by(path):
    """Top names of all modules that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


@pytest.mark.parametrize(("distribution", "module"), ENTRIES)
def test_registering_imports_nothing_heavy(distribution, module):
    """Listing plugins costs no torch and no Docker: parts are imported when chosen."""
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240
    )

    assert not set(HEAVY) & set(json.loads(done.stdout)), distribution


def test_the_builtin_plugin_is_among_those_that_are_checked():
    """The test above is about something: the core's own entry point, at least, is installed."""
    assert ("rlvr", "rlvr.builtin.plugin") in ENTRIES


@pytest.mark.parametrize(
    "path", sorted(CORE.rglob("*.py")), ids=lambda path: str(path.relative_to(CORE))
)
def test_the_core_imports_no_plugin_and_nothing_heavy(path):
    """Not at the top of a file and not inside a function either."""
    names = set(imported_by(path))

    assert not names & set(HEAVY)
    assert not {name for name in names if name.startswith("rlvr_")}


def test_hooks_are_called_in_one_file():
    """Hooks are called in plugins/host.py; everything else uses its typed methods."""
    calls = re.compile(r"\.hook\.|getattr\([\w.]*\.hook\b|subset_hook_caller|get_hookimpls")
    calling = {
        str(path.relative_to(CORE))
        for path in CORE.rglob("*.py")
        if calls.search(path.read_text(encoding="utf-8"))
    }

    assert calling == {"plugins/host.py"}


@pytest.mark.parametrize("package", [CORE, TINKER], ids=lambda path: path.name)
def test_no_module_outgrows_its_idea(package):
    """Past 300 lines a second idea has moved in."""
    sizes = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in package.rglob("*.py")}

    assert sizes
    assert {
        str(p.relative_to(package)): n for p, n in sizes.items() if n > 300 and p.name != "types.py"
    } == {}
