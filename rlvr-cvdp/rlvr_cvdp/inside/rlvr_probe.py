"""A pytest plugin that notes the outcome of each item, beside how many simulations had run by then.

Loaded with `-p rlvr_probe` inside the sandbox; standard library and pytest only. A warm worker has
loaded it already: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import threading
import warnings
from typing import Any

import pytest
import rlvr_record

_records: dict[int, rlvr_record.Record] = {}
_speaking = threading.Lock()
_sessions: list[object] = []


def note(kind: str, body: Any) -> int:
    """Tell the supervisor; gives how many simulations have ended so far."""
    with _speaking:
        if os.getpid() not in _records:  # a fork has a connection of its own
            _records[os.getpid()] = rlvr_record.Record()
        return _records[os.getpid()].note(kind, body)


def stack_runner() -> Any:
    """The module of the runner of the stack's cocotb, and its class; None where there is none."""
    is_second = os.environ.get("RLVR_COCOTB") == "2"
    with warnings.catch_warnings(), contextlib.suppress(ImportError):
        warnings.simplefilter("ignore")
        module = importlib.import_module("cocotb_tools.runner" if is_second else "cocotb.runner")
        return module, module.Runner if is_second else module.Simulator
    return None


def pytest_configure(config: Any) -> None:
    """Count sessions: a test may run pytest in its own process."""
    _sessions.append(config)


def pytest_unconfigure() -> None:
    """The last word of the last session: nothing was cut off."""
    _sessions.pop()
    if not _sessions:
        note("end", None)


def pytest_runtest_logreport(report: Any) -> None:
    """Each item's outcome; of set-up and tear-down only failures."""
    if report.when == "call" or report.outcome == "failed":
        said = {"item": report.nodeid, "when": report.when, "outcome": report.outcome}
        note("item", {**said, "text": _said(report)})


def _said(report: Any) -> str:
    """What made an item fail, its first lines."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(getattr(crash, "message", ""))[:500] if report.failed else ""


def pytest_collection_finish(session: Any) -> None:
    """All items that are to run, in order."""
    note("collected", [item.nodeid for item in session.items])


def pytest_collectreport(report: Any) -> None:
    """What could not be imported, with the end of the reason."""
    if report.failed:
        said = {"item": report.nodeid, "when": "collect", "outcome": "failed"}
        note("item", {**said, "text": str(report.longrepr)[-800:]})


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> None:
    """A test that returns True says that it passed; False stays what fails it, as a warning."""
    test = pyfuncitem.obj
    if inspect.iscoroutinefunction(test):
        return

    @functools.wraps(test)
    def call(*args: Any, **kwargs: Any) -> Any:
        returned = test(*args, **kwargs)
        return None if returned is True else returned

    pyfuncitem.obj = call
