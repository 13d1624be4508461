"""What a warm worker loads, and how a fork of it becomes a process like any other.

Standard library only; it runs inside the sandbox (see rlvr_zygote.py).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

PLACEHOLDER = "+" + 200 * "_"
"""Last argument of this process; a simulation has its own written over it."""
_PR_SET_DUMPABLE = 4
_OWN = "/rlvr/python"
_PRELOADED: Mapping[str, tuple[str, ...]] = {
    "1": ("pytest", "cocotb", "cocotb.runner", "cocotb.triggers", "cocotb.clock", "cocotb.result"),
    "2": (
        *("pygpi.entry", "cocotb._init", "cocotb_tools._coverage", "cocotb.logging", "cocotb"),
        *("pytest", "cocotb_tools.runner", "cocotb.triggers", "cocotb.clock", "cocotb.result"),
        *("cocotb._xunit_reporter", "cocotb.types", "cocotb.queue"),
    ),
}
_MORE = (
    *("xml.etree.ElementTree", "logging", "subprocess", "random", "pathlib", "cocotb.regression"),
    *("cocotb.handle", "_pytest.assertion.rewrite", "_pytest.junitxml", "_pytest.logging"),
    *("_pytest.cacheprovider", "_pytest.unittest", "_pytest.doctest", "_pytest.python"),
    *("_pytest.capture", "_pytest.terminal", "_pytest.pathlib", "_pytest.tmpdir", "fractions"),
    *("unittest", "doctest", "pdb", "glob", "json", "find_libpython", "math"),
    *("importlib.metadata._adapters", "_pytest._argcomplete", "rlvr_probe", "ipaddress"),
)
# Read by cocotb and Python while they are imported: a command that wants them otherwise than they
# were here gets processes of its own.
_FIXED = (
    *("COCOTB_ENABLE_PROFILING", "COCOTB_SCHEDULER_DEBUG", "COCOTB_PDB_ON_EXCEPTION", "COVERAGE"),
    *("COCOTB_TRUST_INERTIAL_WRITES", "COCOTB_INDEXING_CHANGED_WARNING", "COCOTB_RESOLVE_X"),
    *("COCOTB_ATTACH", "LIBPYTHON_LOC", "LD_PRELOAD", "LD_LIBRARY_PATH", "RLVR_COCOTB"),
    *("COCOTB_LIBRARY_COVERAGE", "PYGPI_USERS", "PYGPI_ENTRY_POINT", "RLVR_SHIM"),
)
_FREE_PYTHON = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
is_simulation = False
"""True in a child that simulates."""


def preload() -> None:
    """Load what the harnesses of this generation of cocotb load; what fails will fail for them."""
    plugins: list[str] = []
    with contextlib.suppress(Exception):
        config = importlib.import_module("_pytest.config")
        plugins = [f"_pytest.{name}" for name in config.default_plugins]
    for name in (*_PRELOADED[os.environ.get("RLVR_COCOTB", "2")], *_MORE, *plugins):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    with contextlib.suppress(Exception):  # looked up anew each time that pytest's header names it
        pluggy: Any = importlib.import_module("pluggy")
        pluggy.__version__ = pluggy.__version__


def allow_a_look(is_allowed: bool) -> None:
    """Whether other processes of the sandbox may look into this one or change it."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, int(is_allowed), 0, 0, 0)


def settings() -> tuple[object, ...]:
    """What others could set for this process, where they are root: its children begin with it."""
    found = []
    for name in ("autogroup", "comm", "coredump_filter", "limits", "oom_score_adj"):
        with contextlib.suppress(OSError), open(f"/proc/self/{name}") as file:
            found.append(file.read())
    return (*found, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))


def end_quickly() -> None:
    """
    Leave a simulation's Python as it stands when the interpreter ends.

    All that a harness registered has run by then. Taking every module apart would touch, and so
    copy, most of the memory that a fork shares with this worker: it costs more than the tests.
    """
    if is_simulation:
        sys.stdout.flush()
        sys.stderr.flush()
        gc.disable()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(dict(sys.modules)))
        gc.freeze()
        sys.modules.clear()


def base_path() -> list[str]:
    """Where Python looks after what PYTHONPATH names: its own library, and the stack's packages."""
    return [entry for entry in sys.path if entry != _OWN]


def set_last_argument(text: str) -> None:
    """Give this process, the simulator, another last argument than it was started with."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b") ")[2].split()
    end = int(fields[46])  # arg_end: where the arguments end in memory
    ctypes.memmove(
        end - len(PLACEHOLDER) - 1, os.fsencode(text) + b"\0", len(os.fsencode(text)) + 1
    )


def pytest_words(words: Sequence[str]) -> list[str] | None:
    """What follows `pytest` where the command is pytest and nothing else."""
    if os.path.basename(words[0]) in ("pytest", "py.test") and "/" not in words[0]:
        return list(words[1:])
    if words[0] in ("python", "python3") and list(words[1:3]) == ["-m", "pytest"]:
        return list(words[3:])
    return None


def run_pytest(arguments: list[str], words: Sequence[str]) -> int:
    """Run pytest here as its command would; gives the exit status."""
    import threading

    import pytest

    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    folder = os.path.dirname(sys.executable)
    is_module = words[0] != "pytest"
    sys.path.insert(0, os.getcwd() if is_module else folder)
    sys.argv = [os.path.join(folder, "pytest"), *arguments]
    try:
        code = pytest.console_main()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter itself ends
    atexit._run_exitfuncs()
    return int(code)


def fits(environment: Mapping[str, str], own: Mapping[str, str]) -> bool:
    """Whether what this process has loaded is what a fresh one would load."""
    for name in {*environment, *own}:
        is_fixed = name in _FIXED or name.startswith("GPI_")
        is_python = name.startswith("PYTHON") and name not in _FREE_PYTHON
        if (is_fixed or is_python) and environment.get(name) != own.get(name):
            return False
    return True


def mark_as_simulation() -> None:
    """This process is a fork that simulates from now on."""
    global is_simulation
    is_simulation = True
