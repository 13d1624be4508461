"""Run coroutines concurrently; none runs on after the wait for them has ended."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any, TypeVar

from rlvr.heartbeat import say

__all__ = ["all_of", "as_they_end"]

Opened = TypeVar("Opened")
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
    """Yield each result as soon as it is there; cancel the rest when the caller stops."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        for task in asyncio.as_completed(tasks):
            yield await task
    finally:
        await end(tasks)


Broken = Exception | KeyboardInterrupt | None


async def kept(
    opening: AbstractAsyncContextManager[Opened], work: Callable[[Opened], Awaitable[Result]]
) -> tuple[Result, Broken]:
    """The result of the work, and what was raised as its parts were closed: it loses no result."""
    results = list[Result]()
    try:
        async with opening as opened:
            results.append(await work(opened))
    except asyncio.CancelledError:
        if not results or (current := asyncio.current_task()) is None:
            raise
        current.uncancel()
        return results[0], KeyboardInterrupt()
    except (Exception, KeyboardInterrupt) as error:
        if not results:
            raise
        return results[0], error
    return results[0], None


def run_blocking(main: Callable[[], Coroutine[Any, Any, Result]], *, then: str = "") -> Result:
    """
    `asyncio.run(main())`; in a thread of its own where this one's event loop runs (a notebook).

    There, the first Ctrl-C cancels the work and waits for its end; a second one waits no more.
    `then` says for people what a cancelled work does last.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()
    ended: Future[Result] = Future()
    context = contextvars.copy_context()
    presses = 0

    async def work() -> Result:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        if presses:
            raise asyncio.CancelledError
        return await main()

    def target() -> None:
        try:
            ended.set_result(context.run(lambda: asyncio.run(work())))
        except BaseException as error:  # raised again in the thread that waits
            ended.set_exception(error)

    def pressed(*_: object) -> None:
        nonlocal presses
        presses += 1
        if presses > 1:
            raise KeyboardInterrupt
        say_stopping(then)
        if begun.done():  # else it sees the press when it begins
            loop, task = begun.result()
            with suppress(RuntimeError):  # the loop is closed: the work has ended
                loop.call_soon_threadsafe(task.cancel)

    with _on_ctrl_c(pressed):
        threading.Thread(target=target, name="rlvr", daemon=True).start()
        while not ended.done():
            wait([ended], timeout=0.5)  # a signal that another thread receives is seen in between
        try:
            return ended.result()
        except asyncio.CancelledError:
            if not presses:
                raise
            raise KeyboardInterrupt from None


def ending_signals() -> list[signal.Signals]:
    """Signals that end a run; that of a closed terminal is left ignored where it was (nohup)."""
    found = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found


def say_stopping(then: str = "") -> None:
    """Print on standard error what the first Ctrl-C does."""
    say(f"\nrlvr: stopping{then}; Ctrl-C again stops at once")


def say_stopped(command: str) -> None:
    """Print on standard error that the second Ctrl-C was obeyed, and the command that goes on."""
    say(f"rlvr: stopped{f'; go on with: {command}' * bool(command)} (exit 130)")


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
