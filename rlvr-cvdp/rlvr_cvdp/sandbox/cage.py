"""A sandbox that is running: its first process, how to end it, and why it ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from typing import Protocol

from rlvr_cvdp.accounting import is_crowded


class Cage(Protocol):
    """What a warm worker lives in."""

    pid: int
    """Process on this machine below which everything in the sandbox runs."""

    def is_crowded(self, most: int) -> bool:
        """Whether more than `most` processes live in it, where nothing else keeps them from it."""

    async def ended(self) -> str:
        """Wait for its end; gives what it last said."""

    async def kill(self) -> None:
        """End it with everything in it; returns when it is gone."""


class ProcessCage:
    """A cage that is a child process of ours, such as bubblewrap."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    def is_crowded(self, most: int) -> bool:
        """Count what lives below it: Linux does not hold root to a number of processes."""
        return is_crowded(self.pid, most)

    async def ended(self) -> str:
        """Wait for its end; gives the end of its output."""
        assert self._process.stdout is not None
        words = b""
        while chunk := await self._process.stdout.read(1 << 16):
            words = (words + chunk)[-2000:]
        await self._process.wait()
        text = words.decode(errors="replace").strip()
        return text or f"exit status {self._process.returncode}"

    async def kill(self) -> None:
        """Kill its process group and wait for it."""
        kill_group(self._process)
        await drain(self._process)


async def spawn(command: Sequence[str]) -> asyncio.subprocess.Process:
    """
    Start a process in a session of its own, its output in a pipe.

    A cancellation that comes while it starts waits until it has, and then ends it: what asyncio
    itself does there leaves the process behind.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=1 << 20,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        process = await starting
        kill_group(process)
        await drain(process)
        raise


def kill_group(process: asyncio.subprocess.Process) -> None:
    """Kill a process and its group. Bubblewrap's own death takes its PID namespace with it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def drain(process: asyncio.subprocess.Process) -> None:
    """
    Wait for a process that has ended.

    What is left in its pipe is thrown away first: asyncio stops reading a pipe that nobody
    empties, and then never learns that the process is gone.
    """
    assert process.stdout is not None
    with contextlib.suppress(RuntimeError):  # somebody else is reading it
        while await process.stdout.read(1 << 20):
            pass
    await process.wait()
