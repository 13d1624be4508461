"""Wait for the SDK with a deadline: it has none of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from rlvr_tinker.service.errors import explained, failing_error, late_error
from rlvr_tinker.service.health import Health

T = TypeVar("T")

_SLICE_S = 0.2
"""Seconds between two looks at the service's health."""


async def within(
    request: Any,
    doing: str,
    *,
    limit_s: float,
    health: Health,
    is_running: bool = True,
) -> Any:
    """
    The result of a request.

    The limit counts from when anything of the service was last finished, so that a long queue is
    not taken for a stall. A request that is given up is cancelled: the SDK would repeat it.

    Args:
        request: What the SDK gave, or a future of the standard library.
        doing: A clause for errors: "an update was sent".
        limit_s: Longest wait without any progress, seconds.
        health: What the service answers meanwhile.
        is_running: See `errors.explained`.

    Raises:
        LostError: It was not finished in time, or failed.
        RefusedError: The service refuses it.
        PrerequisiteError: The key is refused, or the server speaks another protocol.
    """
    # asked first: what the SDK gives is a Future too, one that warns when it is used as such
    inner = asyncio.wrap_future(request.future() if hasattr(request, "future") else request)
    begun = time.monotonic()
    try:
        while not (await asyncio.wait({inner}, timeout=min(_SLICE_S, limit_s)))[0]:
            if health.is_failing:
                raise failing_error(doing, health.lately)
            if time.monotonic() - max(begun, health.progressed) > limit_s:
                raise late_error(doing, limit_s, health.lately)
        result = inner.result()
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if inner.cancelled() and not (task and task.cancelling()):  # by the SDK, not by us
            raise explained(RuntimeError("the SDK cancelled the request"), doing) from error
        raise
    except Exception as error:
        raise explained(error, doing, is_running=is_running) from error
    finally:
        inner.cancel()
    health.finished()
    return result


async def in_thread(
    work: Callable[[], T], doing: str, *, limit_s: float, health: Health, is_running: bool = True
) -> T:
    """
    The result of a call of the SDK that blocks, such as one that opens a session.

    Its thread does not keep the process alive when the wait was given up.

    Raises:
        RlvrError: As `within`.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            found = work()
        except BaseException as error:
            with contextlib.suppress(InvalidStateError):  # the wait was given up
                outcome.set_exception(error)
        else:
            with contextlib.suppress(InvalidStateError):
                outcome.set_result(found)

    threading.Thread(target=run, daemon=True, name="rlvr-tinker").start()
    found: T = await within(outcome, doing, limit_s=limit_s, health=health, is_running=is_running)
    return found
