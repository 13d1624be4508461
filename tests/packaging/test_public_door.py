"""`import rlvr` is the public door: each name once, found lazily, known to mypy."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import rlvr


def names() -> list[str]:
    return [name for module in rlvr.PUBLIC for name in importlib.import_module(module).__all__]


def test_each_name_is_there_once() -> None:
    """Two modules with one name would hide one of them."""
    assert [name for name, count in Counter(names()).items() if count > 1] == []
    for name in names():
        assert getattr(rlvr, name) is not None
        assert name in dir(rlvr)


def test_no_module_bears_the_name_of_something_public() -> None:
    """Its import would replace the public object by the module."""
    assert {info.name for info in pkgutil.iter_modules(rlvr.__path__)} & set(names()) == set()


@pytest.mark.parametrize("name", ["Typo", "Taks", "_private", "training"])
def test_other_names_are_refused(name: str) -> None:
    """As of any module."""
    if name != "training":
        with pytest.raises(ImportError, match=name):
            exec(f"from rlvr import {name}")
        return
    code = "import rlvr; rlvr.training"  # other tests have imported it
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 1
    assert name in found.stderr


def test_what_a_plugin_module_imports_is_light() -> None:
    """Records, hooks and errors come without NumPy: `rlvr --help` imports every plugin module."""
    code = (
        "import sys; from rlvr import ConfigError, TaskSpec, hookimpl, option; "
        "import rlvr; hasattr(rlvr, '__wrapped__'); "
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.serial
@pytest.mark.slow
def test_mypy_knows_the_names(tmp_path: Path) -> None:
    """A wrong one is an error there, a right one has its type."""
    file = tmp_path / "user.py"
    file.write_text("from rlvr import Datum, Task, Typo, open_policy\nx: int = Datum\n")
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(file)], capture_output=True, text=True
    )
    # by its name, as mypy's cache remembers the folder of an earlier run
    errors = [line for line in found.stdout.splitlines() if file.name in line]
    assert len(errors) == 2, found.stdout
    assert '"Typo"' in errors[0]
    assert "type[Datum]" in errors[1]


def test_a_star_imports_all_that_is_public() -> None:
    """`from rlvr import *` gives each public name, and nothing heavy is imported for it."""
    code = "from rlvr import *; import sys; assert 'torch' not in sys.modules; print(*dir())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert set(done.stdout.split()) >= {*names(), "option", "hookimpl"}
