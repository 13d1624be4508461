"""What a part changes of the process that all parts share is told, and made as it was."""

from __future__ import annotations

import builtins
import decimal
import importlib
import locale
import multiprocessing
import os
import random
import resource
import shutil
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlvr
from rlvr.testing.process import ChangedError, KitWarning, Shared, nothing_changed

torch = pytest.importorskip("torch")


def lower_a_limit() -> None:
    """Only the soft one: a hard one stays lowered."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def go_where_nothing_is() -> None:
    """Into a folder that is removed then."""
    os.mkdir("gone")
    os.chdir("gone")
    shutil.rmtree("../gone")


CHANGES: dict[str, Callable[[], Any]] = {
    "environment variables: RLVR_TEST": lambda: os.environ.update(RLVR_TEST="a-secret"),
    "the working directory to /": lambda: os.chdir("/"),
    "the working directory to a folder that is gone": go_where_nothing_is,
    "the umask to 63": lambda: os.umask(0o77),
    "the locale": lambda: locale.setlocale(locale.LC_NUMERIC, "C.UTF-8"),
    "sys.path": lambda: sys.path.insert(0, "/somewhere"),
    "sys.stdout": lambda: setattr(sys, "stdout", sys.stderr),
    "sys.excepthook": lambda: setattr(sys, "excepthook", print),
    "the recursion limit to 50000": lambda: sys.setrecursionlimit(50_000),
    "the default timeout of sockets to 3": lambda: socket.setdefaulttimeout(3),
    "which warnings are shown": lambda: warnings.simplefilter("ignore"),
    "builtins": lambda: setattr(builtins, "open", None),
    "the module rlvr in sys.modules": lambda: sys.modules.pop("rlvr"),
    "decimal's prec to 3": lambda: setattr(decimal.getcontext(), "prec", 3),
    "the limit RLIMIT_CORE": lower_a_limit,
    "torch's default dtype": lambda: torch.set_default_dtype(torch.float64),
    "torch's default device": lambda: torch.set_default_device("meta"),
    "torch's gradients": lambda: torch.set_grad_enabled(False),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("fails", [False, True])
def test_a_change_is_told_and_undone(
    change: str, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its name, without a value that may be secret; also where the part then fails over it."""
    monkeypatch.chdir(tmp_path)
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
    before = Shared()

    def part() -> None:
        CHANGES[change]()
        if fails:
            raise KeyError("rlvr")

    with pytest.raises(ChangedError) as caught, nothing_changed():
        part()

    assert f"it changed {change}" in str(caught.value)
    assert "a-secret" not in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError) is fails
    assert before.changes() == []
    assert sys.modules["rlvr"] is rlvr
    assert not torch.overrides._get_current_function_mode_stack(), "a mode of torch is left"


DRAWS: dict[str, Callable[[], Any]] = {
    "numbers of random": random.random,
    "numbers of numpy.random": lambda: np.random.seed(0),  # the planted fault
    "torch's random numbers": lambda: torch.rand(1),
}


@pytest.mark.parametrize("draw", DRAWS)
def test_numbers_that_others_draw_too_are_warned_of(draw: str) -> None:
    """Libraries draw names from them: a run goes on, and may differ."""
    with pytest.warns(KitWarning, match=draw), nothing_changed():
        DRAWS[draw]()


def test_what_is_left_running_is_named() -> None:
    """A thread would keep the process from ending, a process would outlive it."""
    end, children = threading.Event(), []

    def part() -> None:
        threading.Thread(target=end.wait, name="waits").start()
        children.append(subprocess.Popen(["sleep", "60"]))

    with pytest.raises(ChangedError) as caught, nothing_changed():
        part()
    end.set()
    (child,) = children
    child.kill()
    child.wait(60)
    assert f"left running the process {child.pid}, the thread waits: end it" in str(caught.value)


def test_honest_parts_are_left_in_peace() -> None:
    """A generator of its own, a pool that waits for work, a daemon, what multiprocessing keeps."""
    done, start = threading.Event(), multiprocessing.get_context("spawn")
    with nothing_changed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        random.Random(1).random()
        np.random.default_rng(1).random()
        pool = ThreadPoolExecutor(1, thread_name_prefix="mine")
        pool.submit(int).result()
        threading.Thread(target=done.wait, daemon=True).start()
        start.Semaphore()
        sys.path.append(Path("/somewhere"))  # type: ignore[arg-type]  # unlike Python's own
        warnings.simplefilter("ignore", append=True)
        with decimal.localcontext() as context:
            context.prec = 3
    assert sys.path.pop() == Path("/somewhere")
    done.set()
    pool.shutdown()


def test_one_process_for_all_the_work_is_honest() -> None:
    """A compiler that was started once; one more each time is not."""
    kept: dict[object, str] = {}
    children = []

    def part() -> None:
        children.append(subprocess.Popen(["sleep", "60"]))

    with nothing_changed(kept):
        part()
    with pytest.raises(ChangedError, match="left running the process"), nothing_changed(kept):
        part()
    for child in children:
        child.kill()
        child.wait(60)


def test_a_library_may_add_variables_where_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the steps of a check alone: listing plugins is to add none."""
    monkeypatch.delenv("RLVR_TEST", raising=False)
    for kept in ({}, None):
        monkeypatch.delitem(sys.modules, "this", raising=False)
        changed: list[str] = []
        try:
            with nothing_changed(kept), redirect_stdout(StringIO()):
                importlib.import_module("this")
                os.environ["RLVR_TEST"] = "1"
        except ChangedError as error:
            changed.append(str(error))
        assert bool(changed) is (kept is None), changed
        assert ("RLVR_TEST" in os.environ) is (kept is not None)
        monkeypatch.delenv("RLVR_TEST", raising=False)


def test_a_failure_of_the_part_stays_its_own() -> None:
    """Where nothing was changed."""
    with pytest.raises(KeyError, match="mine"), nothing_changed():
        raise KeyError("mine")
