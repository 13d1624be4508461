"""What every test of the project starts from, whichever ran before it in the same process."""

from __future__ import annotations

import atexit
import gc
import os
import signal
from collections import Counter
from collections.abc import Generator

import pytest
import structlog

# Before torch is imported: on its tiny models two threads wait for each other more than they
# compute, and two workers have no more cores. A test of threads asks for its own number.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What a shell's background job or nohup ignores, every process that it starts would ignore too.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


# What is set aside below goes when Python ends, else libraries tell of leaks (nanobind).
atexit.register(gc.unfreeze)

# Tests are collected as millions of objects that stay: looking for garbage finds none.
gc.disable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Each worker begins a folder with another file, and finds the rest compiled by the others."""
    report = yield
    worker = getattr(collector.config, "workerinput", None)
    if worker and isinstance(collector, pytest.Directory) and (found := report.result):
        start = int(worker["workerid"].removeprefix("gw")) * len(found) // worker["workercount"]
        report.result = [*found[start:], *found[:start]]
    return report


def pytest_collection_finish() -> None:
    """Garbage is collected again while tests run, less often than usual: there is little."""
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _lasts() -> None:
    """What is there before a file of tests is not looked at again by each garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _logs_as_at_start() -> None:
    """
    Each test finds logs as a new process would.

    A command that a test runs in this process sets them up, and `capture_logs` leaves structlog
    with settings of its own; the next test's log lines would else go to another place or form.
    """
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """
    Mark cases as thorough where a test says `one_of`, and put long files first.

    Workers take files whose tests start processes first, whole files as they are, all of them in
    one order.

    What is left at the end is short, so that no worker waits minutes for the other's last file.
    """
    cases: Counter[object] = Counter()
    for item in items:
        if mark := item.get_closest_marker("one_of"):
            test = item.parent, item.name.partition("[")[0]
            every, *kept = mark.args
            if cases[test] % every and not any(name in item.name for name in kept):
                item.add_marker("thorough")
            cases[test] += 1
    if hasattr(config, "workerinput"):
        marks = ("integration", "slow")
        long = {item.path for item in items if any(map(item.get_closest_marker, marks))}
        items.sort(key=lambda item: (item.path not in long, item.path))
