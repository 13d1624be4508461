"""Runs one command line in a sandbox of its own, to its end or to its limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from rlvr import VerifierError
from rlvr_cvdp.sandbox.processes.accounting import activity, cpu_seconds, is_crowded
from rlvr_cvdp.sandbox.processes.collector import Collector
from rlvr_cvdp.sandbox.processes.process import drain, kill_group
from rlvr_cvdp.sandbox.processes.watch import LOOK_S, Watch
from rlvr_cvdp.sandbox.recorder import PLACE, Recorder
from rlvr_cvdp.sandbox.records import CPU_SLACK_S, DESCRIPTORS, MEGABYTE, Finished, Limits

START = ': > /rlvr/out/started; exec "$@"'


def start_limits(limits: Limits) -> str:
    """Shell commands that set the limits of a process and of all it starts."""
    soft = round(limits.cpu_s) + CPU_SLACK_S
    return (
        f"ulimit -c 0; ulimit -S -t {soft}; ulimit -H -t {soft + 5}; "
        f"ulimit -v {limits.memory_mb * 1000}; ulimit -f {limits.file_mb * MEGABYTE // 512}; "
        f"ulimit -p {limits.processes}; ulimit -n {DESCRIPTORS}; "
    )


async def run_fresh(
    start: Callable[[], Awaitable[asyncio.subprocess.Process]], *, folder: Path, limits: Limits
) -> Finished:
    """
    Start a sandbox and wait for its end; it notes in `folder/out/started` that the sandbox stands.

    Cancelling it kills the sandbox and everything in it before the cancellation goes on.

    Raises:
        VerifierError: The sandbox could not start, or was ended by somebody else.
    """
    (folder / "out" / "started").unlink(missing_ok=True)
    (folder / "control" / PLACE).unlink(missing_ok=True)
    recorder = Recorder(folder / "control")
    try:
        return await _recorded(start, recorder, folder=folder, limits=limits)
    finally:
        await recorder.close()


async def _recorded(
    start: Callable[[], Awaitable[asyncio.subprocess.Process]],
    recorder: Recorder,
    *,
    folder: Path,
    limits: Limits,
) -> Finished:
    started = folder / "out" / "started"
    begun = time.monotonic()
    try:
        record = await recorder.begin()
        process = await start()
    except OSError as error:
        raise VerifierError(f"the sandbox could not be started: {error}") from None
    assert process.stdout is not None
    collector = Collector(limits.output_mb * MEGABYTE)
    stopped, cpu_s = "", 0.0
    watch = Watch(
        folder,
        limits,
        process.pid,
        is_crowded=partial(is_crowded, process.pid),
        activity=partial(activity, process.pid),
    )
    reading = asyncio.create_task(_read(collector, process))
    try:
        stopped = await _watched(reading, watch)
        if stopped not in ("", "processes", "memory"):  # those are ended first
            cpu_s = cpu_seconds(process.pid)
    finally:
        kill_group(process)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await drain(process)
    if not started.exists() and not stopped:
        words = collector.text().strip() or f"exit status {process.returncode}"
        raise VerifierError(f"the sandbox could not start: {words[-500:]}")
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


async def _read(collector: Collector, process: asyncio.subprocess.Process) -> bool:
    assert process.stdout is not None
    is_within = await collector.read(process.stdout)
    if is_within:
        await process.wait()
    return is_within


async def _watched(reading: asyncio.Task[bool], watch: Watch) -> str:
    """Wait for the end; gives what the command must be stopped for, "" when it ended."""
    stopped = ""
    while not stopped:
        done, _ = await asyncio.wait({reading}, timeout=LOOK_S)
        if done:
            return "" if reading.result() else "output"
        stopped = watch.excess()
    return stopped
