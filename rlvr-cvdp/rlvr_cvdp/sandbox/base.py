"""Sandboxes and their slots: started, kept warm, lent to one problem at a time."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

from rlvr import Slots
from rlvr_cvdp.sandbox.processes.process import SandboxProcess
from rlvr_cvdp.sandbox.records import Finished, Limits
from rlvr_cvdp.sandbox.worker import Worker, new_worker
from rlvr_cvdp.toolchain.cocotb_stacks import Stack
from rlvr_cvdp.toolchain.toolchain import Toolchain

_limits: dict[asyncio.AbstractEventLoop, dict[int, Slots]] = {}


def program_slots(workers: int) -> AbstractAsyncContextManager[None]:
    """
    A place within the limit of `workers` programs of this event loop.

    There is one limit for all who ask with as many workers: tools between turns, hidden tests,
    verdicts and agents' containers of a run wait in one line, first come, first served. A place is
    taken where a program is started and never within itself, so that one worker is enough. Waiting
    for one does not count against a verdict's deadline (`rlvr.Slots`).
    """
    loop = asyncio.get_running_loop()
    for closed in [known for known in _limits if known.is_closed()]:
        del _limits[closed]
    workers = max(1, workers)
    return _limits.setdefault(loop, {}).setdefault(workers, Slots(workers)).taken()


Result = TypeVar("Result")


async def in_thread(work: Callable[[], Result]) -> Result:
    """The result of work on files, done in a thread; its end is waited for on cancellation too."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():  # a second cancellation waits as well
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        raise


class SandboxLease(Protocol):
    """
    One problem's private place (slot) in a sandbox, filled by `launch.tree.write_tree`.

    `folder/tree` is /code inside, `folder/tree/src` is /src (read-only), `folder/out` takes the
    notes of the sandbox's own programs.
    """

    folder: Path

    async def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        limits: Limits,
        working_dir: str = "/code/rundir",
    ) -> Finished:
        """
        Run a command to its end or to its limits; nothing of it stays running.

        Cancelling it kills everything in the sandbox before the cancellation goes on.

        Raises:
            VerifierError: The sandbox could not start, or was ended by somebody else.
        """


class Sandbox(abc.ABC):
    """
    Makes slots; inside an `async with` warm ones are used again, outside each is made anew.

    Args:
        toolchain: Tools and stacks, paths as seen inside.
        warm: Most slots that wait for a problem inside an `async with`; more may run at once, and
            end when they are given back.
        workers: Slots at the same time, with those of all other sandboxes (`program_slots`).
    """

    name: str

    def __init__(self, toolchain: Toolchain, *, warm: int = 0, workers: int = 1) -> None:
        self.toolchain = toolchain
        self._warm, self._workers = warm, workers
        self._most = 0
        self._waiting: list[Worker] = []

    async def __aenter__(self) -> Sandbox:
        """Keep slots warm from now on."""
        self._most = self._warm
        return self

    async def __aexit__(self, *error: object) -> None:
        """End all slots that wait."""
        self._most = 0
        waiting, self._waiting = self._waiting, []
        await asyncio.gather(*(worker.close() for worker in waiting))

    @asynccontextmanager
    async def slot(self, stack: Stack) -> AsyncIterator[SandboxLease]:
        """An empty slot for harnesses of a stack; emptied again, or ended, when it is left."""
        async with program_slots(self._workers):
            worker = self._take(stack) or await self._start(stack)
            try:
                yield worker
            finally:
                try:
                    if worker.is_usable:
                        await in_thread(worker.renew)
                finally:
                    await self._put_back(worker)

    async def _put_back(self, worker: Worker) -> None:
        if worker.is_usable:
            self._waiting.append(worker)
            surplus = self._waiting[: max(0, len(self._waiting) - self._most)]
            del self._waiting[: len(surplus)]
        else:
            surplus = [worker]
        for each in surplus:
            await each.close()

    def _take(self, stack: Stack) -> Worker | None:
        for place in reversed(range(len(self._waiting))):
            if self._waiting[place].stack == stack:
                return self._waiting.pop(place)
        return None

    async def _start(self, stack: Stack) -> Worker:
        worker = new_worker(stack)
        try:
            process = await self._launch(worker.folder, stack)
        except BaseException:
            await worker.close()
            raise
        await worker.attach(process)
        return worker

    @abc.abstractmethod
    async def _launch(self, folder: Path, stack: Stack) -> SandboxProcess:
        """
        Start the warm worker (`worker.zygote_command`) of a slot that lies in a folder.

        Raises:
            VerifierError: It could not be started.
        """
