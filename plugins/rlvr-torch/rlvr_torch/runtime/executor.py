"""One thread for everything that uses the weights, so that the event loop stays free.

Calls run one after the other: sampling never sees half an update. One thread also means one pool
of BLAS threads.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def _ended(
    work: Callable[[Callable[[], bool]], Result], is_cancelled: Callable[[], bool]
) -> Result:
    """The work's result; a StopIteration, which no future takes, as generators tell of it."""
    try:
        return work(is_cancelled)
    except StopIteration as error:  # the waiting task would wait for ever
        raise RuntimeError("a call raised StopIteration") from error


class Executor:
    """Runs functions in its thread; each is given a function that says whether to give up."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="rlvr-torch")

    async def run(self, work: Callable[[Callable[[], bool]], Result]) -> Result:
        """
        `work(is_cancelled)` in the thread.

        When the waiting task is cancelled, `is_cancelled()` turns true and the work's end is
        awaited, so nothing changes behind the caller's back. Work that finished in spite of it
        gives its result, and the cancellation arrives at the caller's next await: what was done
        is known.
        """
        cancelled = threading.Event()
        here = contextvars.copy_context()  # what it logs goes to the log of the caller's run
        future = asyncio.get_running_loop().run_in_executor(
            self._threads, here.run, _ended, work, cancelled.is_set
        )
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            cancelled.set()
            await asyncio.wait([future])
            if future.exception() is not None:
                raise
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
                asyncio.get_running_loop().call_soon(task.cancel)
            return future.result()

    def submit(self, work: Callable[[], None]) -> None:
        """Queue `work()` for the thread; nobody waits for it. `RuntimeError` where it is closed."""
        self._threads.submit(work)

    def close(self) -> None:
        self._threads.shutdown(wait=True)
