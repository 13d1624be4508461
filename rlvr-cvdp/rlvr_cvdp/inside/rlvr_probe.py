"""A pytest plugin that notes the outcome of each item, beside how many simulations had run by then.

Loaded with `-p rlvr_probe` inside the sandbox; standard library and pytest only.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from typing import Any

import pytest

OUT = "/rlvr/out"


def _launches() -> int:
    try:
        with open(f"{OUT}/launches", encoding="utf-8") as file:
            return sum(1 for _ in file)
    except OSError:
        return 0


def _note(**record: Any) -> None:
    with open(f"{OUT}/items", "a", encoding="utf-8") as file:
        file.write(json.dumps({**record, "launches": _launches()}) + os.linesep)


def pytest_runtest_logreport(report: Any) -> None:
    """Each item's outcome; of set-up and tear-down only failures."""
    if report.when == "call" or report.outcome == "failed":
        _note(item=report.nodeid, when=report.when, outcome=report.outcome, text=_said(report))


def _said(report: Any) -> str:
    """What made an item fail, its first lines."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(getattr(crash, "message", ""))[:500] if report.failed else ""


def pytest_collection_finish(session: Any) -> None:
    """All items that are to run, in order."""
    with open(f"{OUT}/collected", "w", encoding="utf-8") as file:
        file.writelines(f"{item.nodeid}{os.linesep}" for item in session.items)


def pytest_collectreport(report: Any) -> None:
    """What could not be imported, with the end of the reason."""
    if report.failed:
        _note(
            item=report.nodeid, when="collect", outcome="failed", text=str(report.longrepr)[-800:]
        )


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
