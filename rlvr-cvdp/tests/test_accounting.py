"""What a sandbox has used, while it goes on using it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from pathlib import Path

from rlvr_cvdp.sandbox.processes.accounting import (
    _proportional,
    activity,
    children,
    is_crowded,
    size_over,
)


def test_a_file_that_vanishes_does_not_hide_the_others(tmp_path: Path, monkeypatch) -> None:
    """One entry removed between listing and looking: the rest still counts, nothing stays open."""
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"x" * 40_000)
    real = os.scandir

    class Vanishing:
        def __init__(self, path: str) -> None:
            self.inner = real(path)

        def __enter__(self):
            (tmp_path / "b").unlink(missing_ok=True)
            return self.inner.__enter__()

        def __exit__(self, *error: object) -> None:
            self.inner.__exit__(*error)

    monkeypatch.setattr(os, "scandir", Vanishing)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        is_over = size_over(tmp_path, 60_000)
        gc.collect()

    assert is_over


def test_a_folder_that_is_gone_takes_nothing(tmp_path: Path) -> None:
    """A sandbox that was cleaned up meanwhile is not over its limit."""
    assert not size_over(tmp_path / "gone", 0)


def test_processor_time_of_children_counts() -> None:
    """A child that computes is charged to the process above it."""
    burn = "import time\nwhile time.process_time() < 0.5: pass\nprint(1, flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert activity(os.getpid())[0] >= activity(child.pid)[0] >= 0.4
        child.communicate(b"\n", timeout=60)


def test_children_are_those_that_live() -> None:
    """A child is listed until it was waited for; a process that is gone has none."""
    with subprocess.Popen(["sleep", "60"]) as child:
        assert child.pid in children(os.getpid())
        child.kill()
        child.wait(timeout=60)
    assert child.pid not in children(os.getpid())
    assert children(child.pid) == []


def test_processes_and_threads_below_a_process_are_counted() -> None:
    """Children of each thread and what they started; of threads there may be four times as many."""
    tree = """
import os, subprocess, threading, time
kept = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
shell = "sleep 60 & sleep 60 & wait"
other = threading.Thread(target=lambda: subprocess.run(["sh", "-c", shell]), daemon=True)
other.start()
while len(os.listdir("/proc/self/task")) < 2 or not kept: pass
time.sleep(0.5)
print(1, flush=True)
input()
for _ in range(40): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print(2, flush=True)
input()
os.killpg(0, 9)
"""
    with subprocess.Popen(
        [sys.executable, "-c", tree],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        crowded = [most for most in range(20) if is_crowded(child.pid, most)]
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        with_threads = [most for most in range(20) if is_crowded(child.pid, most)]
        child.stdin.write(b"\n")
        child.stdin.flush()
    assert crowded == list(range(7))  # itself, three, the shell and its two
    assert with_threads == list(range(12))  # 48 threads
    assert not is_crowded(child.pid, 1)


def test_a_process_that_has_ended_shares_nothing() -> None:
    """What it was last seen to hold counts whole: its shares can be read no more."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert _proportional(ended.pid, 5) == 5
    assert _proportional(os.getpid(), 5) > 5
