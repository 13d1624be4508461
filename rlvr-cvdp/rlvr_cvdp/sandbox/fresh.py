"""Slots whose every command has a sandbox of its own, run to its end or to its limits."""

from __future__ import annotations

import asyncio
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from rlvr import VerifierError
from rlvr_cvdp.sandbox.processes.collector import Collector
from rlvr_cvdp.sandbox.processes.process import LocalProcess, drain, kill_group
from rlvr_cvdp.sandbox.processes.watch import LimitMonitor
from rlvr_cvdp.sandbox.recorder import PLACE, Recorder
from rlvr_cvdp.sandbox.records import CPU_SLACK_S, DESCRIPTORS, MEGABYTE, Finished, Limits

_START = ': > /rlvr/out/started; exec "$@"'

Start = Callable[[Sequence[str], str, Mapping[str, str], str], Awaitable[Process]]
"""Starts a command: its words, folder and variables, and the shell's words before it."""


class FreshSlot:
    """A slot in a folder; `start` starts a sandbox for each command."""

    def __init__(self, folder: Path, start: Start) -> None:
        self.folder, self._start = folder, start

    async def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        limits: Limits,
        working_dir: str = "/code/rundir",
    ) -> Finished:
        """See `SandboxLease.run`; the sandbox notes in `out/started` that it stands."""
        started = self.folder / "out" / "started"
        started.unlink(missing_ok=True)
        (self.folder / "control" / PLACE).unlink(missing_ok=True)
        recorder = Recorder(self.folder / "control")
        begun, cpu_s = time.monotonic(), 0.0
        collector = Collector(limits.output_mb * MEGABYTE)
        try:
            try:
                record = recorder.begin()
                words = _limits(limits) + _START
                process = await self._start(argv, working_dir, environment, words)
            except OSError as error:
                raise VerifierError(f"the sandbox could not be started: {error}") from None
            sandbox = LocalProcess(process)
            watch = LimitMonitor(self.folder, limits, sandbox)
            reading = asyncio.create_task(_read(collector, process))
            try:
                stopped = await watch.wait(reading)
                if stopped not in ("", "processes", "memory"):  # those are ended first
                    cpu_s, _ = sandbox.activity()
            finally:
                kill_group(process)
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                await drain(process)
        finally:
            await recorder.close()
        if not started.exists() and not stopped:
            said = collector.text().strip() or f"exit status {process.returncode}"
            raise VerifierError(f"the sandbox could not start: {said[-500:]}")
        if not stopped and process.returncode is not None and process.returncode < 0:
            raise VerifierError(f"the sandbox was ended by signal {-process.returncode}")
        return Finished(
            rc=None if stopped else process.returncode,
            stopped=stopped,
            output=collector.text(),
            summaries=tuple(collector.summaries),
            seconds=time.monotonic() - begun,
            cpu_s=cpu_s,
            record=record,
        )


def _limits(limits: Limits) -> str:
    """Shell commands that set the limits of a process and of all it starts."""
    soft = round(limits.cpu_s) + CPU_SLACK_S
    return (
        f"ulimit -c 0; ulimit -S -t {soft}; ulimit -H -t {soft + 5}; "
        f"ulimit -v {limits.memory_mb * 1000}; ulimit -f {limits.file_mb * MEGABYTE // 512}; "
        f"ulimit -p {limits.processes}; ulimit -n {DESCRIPTORS}; "
    )


async def _read(collector: Collector, process: Process) -> bool:
    assert process.stdout is not None
    is_within = await collector.read(process.stdout)
    if is_within:
        await process.wait()
    return is_within
