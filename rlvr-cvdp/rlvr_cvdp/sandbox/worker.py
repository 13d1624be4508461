"""This side of a warm worker: hands it one command after another (see inside/rlvr_zygote.py)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr import VerifierError
from rlvr_cvdp.sandbox.folders.root import (
    make_slot_folder,
    new_folder,
    remove_folder,
    slot_places,
)
from rlvr_cvdp.sandbox.processes.collector import Collector
from rlvr_cvdp.sandbox.processes.process import SandboxProcess
from rlvr_cvdp.sandbox.processes.watch import LimitMonitor
from rlvr_cvdp.sandbox.recorder import Recorder, listen
from rlvr_cvdp.sandbox.records import CPU_SLACK_S, DESCRIPTORS, MEGABYTE, Finished, Limits
from rlvr_cvdp.toolchain.cocotb_stacks import Stack

_START_S = 60.0
_STOP_S = 5.0
_MOST_COMMANDS = 2000


class Worker:
    """
    A slot in a sandbox that stays.

    `is_usable` says whether it may take another problem: not after it had to be killed, nor after
    so many commands that starting anew costs nothing.
    """

    def __init__(self, folder: Path, stack: Stack, on_close: Callable[[], None]) -> None:
        self.folder = folder
        self.stack = stack
        self._on_close = on_close
        self.is_usable = False
        self._commands = 0
        self._process: SandboxProcess | None = None
        self._control: socket.socket | None = None
        self._places = slot_places(folder)
        self._listener = listen(folder / "control", "socket")
        self._recorder = Recorder(folder / "control")

    async def attach(self, process: SandboxProcess) -> None:
        """
        Wait until the worker in a sandbox that was just started calls.

        Raises:
            VerifierError: It ended, or said nothing for a minute.
        """
        self._process = process
        ended = asyncio.create_task(process.ended())
        accepting = asyncio.create_task(self._accept())
        try:
            await asyncio.wait(
                {accepting, ended}, timeout=_START_S, return_when=asyncio.FIRST_COMPLETED
            )
            if accepting.done():
                accepting.result()
                self.is_usable = True
                return
            words = ended.result() if ended.done() else "it said nothing"
            raise VerifierError(f"a sandbox could not start: {words[-500:]}")
        finally:
            for task in (ended, accepting):
                task.cancel()
            await asyncio.gather(ended, accepting, return_exceptions=True)
            if not self.is_usable:
                await self.close()

    async def _accept(self) -> None:
        """Own the connection from the moment it is made: this may be cancelled at any other."""
        loop = asyncio.get_running_loop()
        called = asyncio.Event()
        loop.add_reader(self._listener, called.set)
        try:
            await called.wait()
        finally:
            loop.remove_reader(self._listener)
        self._control, _ = self._listener.accept()
        self._control.setblocking(False)
        (self.folder / "control" / "socket").unlink(missing_ok=True)
        self._listener.close()
        line = await loop.sock_recv(self._control, 4096)
        if b"ready" not in line:
            raise VerifierError("a sandbox could not start: its worker went away")

    async def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        limits: Limits,
        working_dir: str = "/code/rundir",
    ) -> Finished:
        """Run a command; see `SandboxLease.run`."""
        if self._control is None or self._process is None or not self.is_usable:
            raise VerifierError("the sandbox is gone")
        self.is_usable = False  # until the command has ended in good order
        self._commands += 1
        record = self._recorder.begin()
        watch = LimitMonitor(self.folder, limits, self._process)
        message = {
            "do": "run",
            "argv": list(argv),
            "environment": dict(environment),
            "folder": working_dir,
            "limits": _rlimits(limits),
        }
        collector = Collector(limits.output_mb * MEGABYTE)
        reader, transport = await self._send(message)
        reading = asyncio.create_task(collector.read(reader))
        reply = asyncio.create_task(self._reply())
        try:
            stopped = await watch.wait(reading, reply)
            answer: dict[str, Any] = {}
            if stopped:
                cpu_s = await self._stop(reply)
            else:
                answer = await reply
                cpu_s = answer["cpu_s"]
                await asyncio.wait({reading}, timeout=_STOP_S)
                stopped = "" if not reading.done() or reading.result() else "output"
                # What ended in good order may go on; not where somebody still holds its output.
                self.is_usable = reading.done() and not stopped and answer["clean"]
            return Finished(
                rc=None if stopped else answer["rc"],
                stopped=stopped,
                output=collector.text(),
                summaries=tuple(collector.summaries),
                seconds=time.monotonic() - watch.begun,
                cpu_s=cpu_s,
                record=record,
            )
        finally:
            for task in (reading, reply):
                task.cancel()
            await asyncio.gather(reading, reply, return_exceptions=True)
            transport.close()
            if not self.is_usable:
                await self._end()  # its folder stays until the slot is left

    async def _send(
        self, message: Mapping[str, Any]
    ) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
        """Send a message with a pipe for the output of what it asks for; gives the other end."""
        assert self._control is not None
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=1 << 20)
        read_end, write_end = os.pipe()
        try:
            transport, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", 0)
            )
            body = json.dumps(message).encode()
            try:
                socket.send_fds(self._control, [struct.pack("!Q", len(body))], [write_end])
                await loop.sock_sendall(self._control, body)
            except OSError as error:
                raise VerifierError(f"the sandbox is gone: {error}") from None
        finally:
            os.close(write_end)
        return reader, transport

    async def _reply(self) -> dict[str, Any]:
        assert self._control is not None
        loop = asyncio.get_running_loop()
        line = b""
        while not line.endswith(b"\n"):
            try:
                chunk = await loop.sock_recv(self._control, 4096)
            except OSError:
                chunk = b""
            if not chunk:
                raise VerifierError("the sandbox was ended by somebody else")
            line += chunk
        found: dict[str, Any] = json.loads(line)
        return found

    async def _stop(self, reply: asyncio.Task[dict[str, Any]]) -> float:
        """End the command that is running; gives the processor time it had used, seconds."""
        assert self._control is not None
        assert self._process is not None
        body = json.dumps({"do": "stop"}).encode()
        with contextlib.suppress(OSError, TimeoutError):
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(self._control, struct.pack("!Q", len(body)) + body)
            answer = await asyncio.wait_for(asyncio.shield(reply), _STOP_S)
            self.is_usable = answer["clean"]
            return float(answer.get("cpu_s", 0.0))
        return self._process.activity()[0]

    def renew(self) -> None:
        """Make the slot for the next problem as it was for the first; else it takes no other."""
        try:
            for name in ("answer", "allowed"):
                (self.folder / name).write_text("")
            self.is_usable = self._places.renew() and self.is_usable
        except OSError:
            self.is_usable = False
        if self._commands >= _MOST_COMMANDS:
            self.is_usable = False

    async def close(self) -> None:
        """End the sandbox and everything in it, and remove its folder."""
        try:
            await self._end()
        finally:
            self._on_close()

    async def _end(self) -> None:
        self.is_usable = False
        self._listener.close()
        try:
            await self._recorder.close()
        finally:
            if self._control is not None:
                self._control.close()
            process, self._process = self._process, None
            if process is not None:
                await process.kill()


def new_worker(stack: Stack) -> Worker:
    """
    A worker with a folder of its own, to be attached to a sandbox process.

    Raises:
        VerifierError: The folder cannot be made: a full disk.
    """
    folder = new_folder()
    try:
        make_slot_folder(folder)
        return Worker(folder, stack, on_close=lambda: remove_folder(folder))
    except OSError as error:
        remove_folder(folder)
        raise VerifierError(f"{folder} cannot be filled: {error.strerror}") from None


def _rlimits(limits: Limits) -> dict[str, int]:
    return {
        "RLIMIT_CORE": 0,
        "RLIMIT_CPU": round(limits.cpu_s) + CPU_SLACK_S,
        "RLIMIT_AS": limits.memory_mb * 1_024_000,
        "RLIMIT_FSIZE": limits.file_mb * MEGABYTE,
        "RLIMIT_NPROC": limits.processes,
        "RLIMIT_NOFILE": DESCRIPTORS,
    }


def zygote_command(stack: Stack) -> list[str]:
    """
    The command line of a warm worker: the simulator, with a design that is named later.

    It is as the runner of the stack's cocotb writes it. The last two words are as in
    inside/rlvr_zygote.py, which is standard library only and imports nothing of ours.
    """
    libs = stack.site_packages / "cocotb" / "libs"
    words = ["/rlvr/real/vvp", "-M", str(libs), "-m", "libcocotbvpi_icarus"]
    return [*words, "/proc/self/fd/200", "+" + 200 * "_"]


def zygote_environment(stack: Stack) -> Mapping[str, str]:
    """Its variables: those of a service that decide what Python and cocotb load."""
    return {
        "LANG": "C.UTF-8",
        "HOME": "/code/rundir",
        "PATH": f"/rlvr/bin:{stack.python.parent}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": f"/rlvr/python:{stack.site_packages}",
        "PYTHONHASHSEED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LIBPYTHON_LOC": str(stack.libpython),
        "PYGPI_PYTHON_BIN": str(stack.python),
        "VIRTUAL_ENV": str(stack.python.parent.parent),
        "TOPLEVEL_LANG": "verilog",
        "RLVR_COCOTB": str(stack.generation),
        "RLVR_ZYGOTE": "1",
    }
