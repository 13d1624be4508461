"""Ending a sandbox: whatever moment it is ended at, all of it goes, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest
import structlog

from rlvr_cvdp.sandbox.processes import process as cage
from rlvr_cvdp.sandbox.processes.process import LocalProcess, spawn

pytestmark = pytest.mark.timeout(60)

LEAVES_GROUP = """
import os, time
if os.fork() == 0:
    os.setsid()
    os.write(1, b"%d\\n" % os.getpid())
time.sleep(1000)
"""
"""What bubblewrap does in a moment of its start: its child is in no group of its parent's."""

LEAVES_FAMILY = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(1, b"%d\\n" % os.getpid())
        time.sleep(1000)
    os._exit(0)
os.wait()
time.sleep(1000)
"""
"""A process that nobody can find from its first: it is no child's child any more."""


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def _ended(program: str) -> tuple[int, bool, float]:
    """The process that wrote its number, whether it runs after the kill, and how long that took."""
    process = await spawn([sys.executable, "-c", program])
    assert process.stdout is not None
    pid = int(await process.stdout.readline())
    begun = time.monotonic()
    await LocalProcess(process).kill()
    took_s = time.monotonic() - begun
    assert process.returncode == -signal.SIGKILL
    for _ in range(100):
        if not _runs(pid):
            break
        await asyncio.sleep(0.01)
    return pid, _runs(pid), took_s


def test_a_child_that_has_left_the_group_ends_too():
    """Killed while it starts, bubblewrap has a child in a session of its own: that goes as well."""
    _, runs, took_s = asyncio.run(_ended(LEAVES_GROUP))
    assert not runs
    assert took_s < 5


def test_a_pipe_that_somebody_else_holds_is_not_waited_for(monkeypatch):
    """A process that cannot be found keeps its end of a pipe: ours is closed, and that is said."""
    monkeypatch.setattr(cage, "_DRAIN_S", 0.5)
    with structlog.testing.capture_logs() as said:
        pid, runs, took_s = asyncio.run(_ended(LEAVES_FAMILY))
    assert runs, "the test's process was to outlive its parents"
    os.kill(pid, signal.SIGKILL)
    assert 0.5 <= took_s < 5
    assert [entry["event"] for entry in said] == ["sandbox_output_held"]


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_bubblewrap_is_gone_whenever_it_is_killed(monkeypatch):
    """Killed at eighty moments of its start, a sandbox never outlives its first process."""
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
    command += ["--ro-bind", "/", "/", "--proc", "/proc", "/bin/sleep", "1000"]
    monkeypatch.setattr(cage, "_DRAIN_S", 3.0)

    async def kill_all() -> None:
        for number in range(80):
            process = await spawn(command)
            await asyncio.sleep(0.00025 * number)
            await LocalProcess(process).kill()

    with structlog.testing.capture_logs() as said:
        asyncio.run(kill_all())
    assert said == []
