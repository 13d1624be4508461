"""A sandbox that is running: its first process, how to end it, and why it ended."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

import structlog

from rlvr_cvdp.sandbox.processes.accounting import activity, children, is_crowded

log = structlog.get_logger()

_DRAIN_S = 10.0
"""How long what was killed may take to be gone: the kernel takes milliseconds."""


class SandboxProcess(abc.ABC):
    """
    A sandbox that is running.

    Attributes:
        pid: Process on this machine below which everything in the sandbox runs.
    """

    pid: int

    def is_crowded(self, most: int) -> bool:
        """Whether more than `most` processes live in it: Linux does not hold root to a number."""
        return is_crowded(self.pid, most)

    def activity(self) -> tuple[float, bool]:
        """Processor time so far, and whether something in it computes (`accounting.activity`)."""
        return activity(self.pid)

    @abc.abstractmethod
    async def ended(self) -> str:
        """Wait for its end; gives what it last said."""

    @abc.abstractmethod
    async def kill(self) -> None:
        """End it with everything in it; returns when it is gone."""


class LocalProcess(SandboxProcess):
    """A sandbox that is a child process of ours, such as bubblewrap."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

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
        """Kill it with all that it started, and wait for it."""
        kill_group(self._process)
        await drain(self._process)


async def spawn(command: Sequence[str], inherit: Sequence[int] = ()) -> asyncio.subprocess.Process:
    """
    Start a process in a session of its own, its output in a pipe.

    It gets no variable of this process, and of its descriptors only those to `inherit`: what a
    sandbox is started with can be read from inside. Its input is a pipe that is closed: who may
    change the modes of a device's file could do so to this machine's own.

    A cancellation that comes while it starts waits until it has, and then ends it: what asyncio
    itself does there leaves the process behind.
    """
    nothing, end = os.pipe()
    os.close(end)
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command,
            stdin=nothing,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env={},
            pass_fds=inherit,
            limit=1 << 20,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):  # it did not start: there is nothing to end
            process = await starting
            kill_group(process)
            await drain(process)
        raise
    finally:
        os.close(nothing)


def kill_group(process: asyncio.subprocess.Process) -> None:
    """
    Kill a process, its group and its children.

    Bubblewrap's own death takes its PID namespace with it, but for a moment of its start: its
    child has left the group already, and does not yet ask to die with its parent. If
    it is killed just then the sandbox lives on, so the child is killed too; the group is halted
    first so that it starts no other child meanwhile.
    """
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGSTOP)
    for child in children(process.pid):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # never left halted
            os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def drain(process: asyncio.subprocess.Process) -> None:
    """
    Wait for a process that was killed, or has ended.

    What is left in its pipe is thrown away first: asyncio stops reading a pipe that nobody
    empties, and then never learns that the process is gone. It learns that too where somebody
    else still holds the pipe: after some seconds such a pipe is closed from here.
    """
    ending = asyncio.ensure_future(_emptied(process))
    try:
        await asyncio.wait({ending}, timeout=_DRAIN_S)
        if not ending.done():
            log.warning("sandbox_output_held", pid=process.pid, after_s=_DRAIN_S)
            _hang_up(process)
            await asyncio.wait({ending}, timeout=_DRAIN_S)
    finally:
        ending.cancel()


async def _emptied(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    with contextlib.suppress(RuntimeError):  # somebody else is reading it
        while await process.stdout.read(1 << 20):
            pass
    await process.wait()


def _hang_up(process: asyncio.subprocess.Process) -> None:
    """Close our end of a process's pipes; there is no public way to it."""
    process._transport.close()  # type: ignore[attr-defined]
