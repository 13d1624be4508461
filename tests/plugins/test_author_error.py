"""An error of a plugin names the line of its author's code, however it was raised."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlvr
from rlvr.errors import ConfigError, PartError
from rlvr.plugins.author_error import place_in_dump, place_of, said
from rlvr.plugins.resolve import load_object
from tests.conftest import PluginSite

SOURCE = '''
import asyncio, json
from concurrent.futures import ThreadPoolExecutor
import attrs


class Silent(Exception):
    """Its text is empty."""


class Loud(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def fails():
    raise ValueError("two\\n  lines")  # HERE plain

def deep(depth=30):
    return deep(depth - 1) if depth else fails()  # not here

def chained():
    try:
        json.loads("{")
    except ValueError as error:
        raise RuntimeError("no row") from error  # HERE chained

def in_handler():
    try:
        fails()
    except ValueError:
        undefined  # HERE in_handler

def hidden():
    try:
        fails()
    except ValueError:
        raise KeyError("k") from None  # HERE hidden

def in_library():
    return json.loads("{")  # HERE in_library

def in_installed():
    return attrs.evolve(3)  # HERE in_installed

def in_thread():
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(silent).result()

def silent():
    raise Silent  # HERE in_thread

async def later():
    await asyncio.sleep(0)
    assert 1 > 2  # HERE later

async def grouped():
    async with asyncio.TaskGroup() as group:
        group.create_task(fail_in_task())

async def fail_in_task():
    raise KeyError("row")  # HERE grouped

def loud():
    raise Loud()  # HERE loud

def leaves():
    raise SystemExit(3)  # HERE leaves

def made():
    exec("1 / 0")  # HERE made

class Built:
    def __init__(self):
        self.table = {}["key"]  # HERE Built

    def __repr__(self):
        raise ValueError

    @property
    def size(self):
        return self.nothing
'''
SAID = {
    "chained": "RuntimeError: no row",
    "in_handler": "NameError: name 'undefined' is not defined",
    "hidden": "KeyError: 'k'",
    "in_library": "JSONDecodeError: Expecting property name",
    "in_installed": "NotAnAttrsClassError: <class 'int'>",
    "in_thread": "Silent",
    "later": "AssertionError",
    "grouped": "ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception); "
    "the first: KeyError: 'row'",
    "loud": "Loud: (its text raised RuntimeError)",
    "leaves": "SystemExit: 3",
    "made": "ZeroDivisionError: division by zero",
    "Built": "KeyError: 'key'",
    "fails": "ValueError: two lines",
    "deep": "ValueError: two lines",
}


def line_of(file: Path, mark: str) -> int:
    """The line of a file that ends with `# HERE mark`."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return next(n for n, line in enumerate(lines, start=1) if line.endswith(f"# HERE {mark}"))


def raised_by(call: Callable[[], Any]) -> BaseException:
    """What a call raises; a coroutine is awaited."""
    try:
        found = call()
        if asyncio.iscoroutine(found):
            asyncio.run(found)
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


@pytest.mark.parametrize(("name", "text"), SAID.items(), ids=SAID)
def test_an_error_is_said_with_its_line(name: str, text: str, importable_site: PluginSite) -> None:
    """Whatever raised it, wherever it ran: one line, and the author's own line of code."""
    file = importable_site.add("faulty", SOURCE, module="site_faulty")
    module = importlib.import_module("site_faulty")

    found = said(raised_by(getattr(module, name)))

    mark = "plain" if name in ("fails", "deep") else name
    assert found.startswith(text)
    assert found.endswith(f" ({file}:{line_of(file, mark)})")
    assert "\n" not in found


def test_a_plugin_in_site_packages_is_its_authors_code(
    importable_site: PluginSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed library is passed over, an installed plugin is not."""
    from rlvr.plugins import author_error

    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "site_installed.py").write_text(SOURCE, encoding="utf-8")
    (folder / "site_library.py").write_text("def call(work):\n    work(0)\n", encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    module: Any = importlib.import_module("site_installed")
    library: Any = importlib.import_module("site_library")
    monkeypatch.setattr(author_error, "_plugin_packages", lambda: frozenset({"site_installed"}))

    found = place_of(raised_by(lambda: library.call(lambda _: module.in_installed())))

    line = line_of(folder / "site_installed.py", "in_installed")
    assert found == f"{folder / 'site_installed.py'}:{line}"
    (folder / "site_broken.py").write_text("\nnosuch\n", encoding="utf-8")
    with pytest.raises(ImportError, match=re.escape(f"({folder / 'site_broken.py'}:2)")):
        load_object("site_broken:Reward", "broken")  # rlvr calls it, and no plugin is in between


@pytest.mark.parametrize("source", ["def f(:\n", "if True:\npass\n", "x = 'a\n"])
def test_a_plugin_that_is_no_python_names_its_line(
    source: str, importable_site: PluginSite
) -> None:
    """A syntax error has no frame of its own: the file says it."""
    file = importable_site.add("slip", source, module="site_slip")
    line = 2 if source.startswith("if") else 1

    with pytest.raises(ImportError, match=rf"Error: .* \({file}:{line}\)"):
        load_object("site_slip:Reward", "slip")
    done = importable_site.rlvr("plugins", "list", "--json")
    (status,) = [p for p in json.loads(done.stdout) if p["name"] == "slip"]
    assert status["reason"].endswith(f"({file}:{line})"), status
    assert status["reason"].count(f"{file.name}") == 1, status


def test_errors_of_rlvr_have_no_place() -> None:
    """They say what to do; the file they were raised in is none of the author's."""
    error = raised_by(lambda: (_ for _ in ()).throw(ConfigError("asked", "found", "do")))

    assert said(error) == "ConfigError: asked found do"


def test_the_cause_of_a_part_error_is_placed(importable_site: PluginSite) -> None:
    """Rlvr raises it anew: the author's line is in the cause's traceback."""
    file = importable_site.add("faulty", SOURCE, module="site_faulty")
    module: Any = importlib.import_module("site_faulty")
    error = PartError("a part failed.")
    error.__cause__ = raised_by(module.fails)

    assert place_of(error) == f"{file}:{line_of(file, 'plain')}"


def test_a_file_below_the_working_directory_is_named_from_there(
    importable_site: PluginSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short where it can be."""
    importable_site.add("faulty", SOURCE, module="site_faulty")
    module: Any = importlib.import_module("site_faulty")
    monkeypatch.chdir(importable_site.path)

    assert place_of(raised_by(module.fails)).startswith("site_faulty.py:")


def test_a_renamed_module_is_said_of_the_entry_point(importable_site: PluginSite) -> None:
    """Its entry point still names the old one: to install it again would change nothing."""
    importable_site.add("moved", "RLVR_API = 1\n", module="site_before").rename(
        importable_site.path / "site_after.py"
    )
    importable_site.add("needy", "import nosuch\n", module="site_needy")

    done = importable_site.rlvr("plugins", "list", "--json")

    reasons = {p["name"]: p["reason"] for p in json.loads(done.stdout)}
    assert reasons["moved"].startswith("its entry point names the module 'site_before': Module")
    assert reasons["needy"].startswith("ModuleNotFoundError: No module named 'nosuch' (")


def test_a_script_that_calls_the_command_is_no_place_in_a_plugin() -> None:
    """What faulthandler writes of rlvr's own code begins in a file that nobody wrote for rlvr."""
    head, ours = "Thread 0x1 (most recent call first):", Path(rlvr.__file__).parent
    mine = '  File "/home/me/mine.py", line 7 in work'
    tell = f'  File "{ours}/cli/watchdog.py", line 9 in tell'
    script = f'  File "{ours}/cli/main.py", line 9 in main\n  File "/bin/rlvr", line 8 in <module>'

    assert place_in_dump(f"{head}\n{tell}\n{script}") == ""
    other = f"{head}\n{mine}\n\n{head}\n{tell}\n{script}"
    for text in (f"{head}\n{tell}\n{mine}\n{script}", other):
        assert place_in_dump(text) == "/home/me/mine.py:7 (work)"
