"""Coroutines beside each other, none of which outlives the wait for them."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["all_of", "as_they_end"]

Result = TypeVar("Result")


async def all_of(work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Their results, in order; where one fails or the wait is cancelled, all others end first."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        await end(tasks)


async def end(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel what still runs, and wait for its end."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def as_they_end(work: Iterable[Coroutine[Any, Any, Result]]) -> AsyncGenerator[Result]:
    """Each result as soon as it is there; when nobody asks on, what still runs is ended."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        for task in asyncio.as_completed(tasks):
            yield await task
    finally:
        await end(tasks)


def run_blocking(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """
    `asyncio.run(main())`; in a thread of its own where this one's event loop runs (a notebook).

    There, Ctrl-C cancels the work, and its end is waited for, as `asyncio.run` does.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    async def work() -> Result:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        return await main()

    def cancel(*_: object) -> None:
        loop, task = begun.result()
        loop.call_soon_threadsafe(task.cancel)

    with ThreadPoolExecutor(1, thread_name_prefix="rlvr") as thread, _on_ctrl_c(cancel):
        try:
            return thread.submit(contextvars.copy_context().run, asyncio.run, work()).result()
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


@contextmanager
def _on_ctrl_c(handler: Callable[..., None]) -> Iterator[None]:
    """Within the block Ctrl-C calls the handler; other threads than the main one get none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
