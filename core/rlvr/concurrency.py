"""Coroutines beside each other, none of which outlives the wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable
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
