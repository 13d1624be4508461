"""How many programs run at the same time in this process, whoever starts them."""

from __future__ import annotations

import asyncio

_limits: dict[asyncio.AbstractEventLoop, dict[int, asyncio.Semaphore]] = {}


def program_slots(workers: int) -> asyncio.Semaphore:
    """
    The limit of `workers` programs, one for all that run in this event loop with as many workers.

    Tools between turns, hidden tests, verdicts and agents' containers of a run wait in one line,
    first come, first served. It is taken where a program is started and never within itself, so
    that one worker is enough.
    """
    loop = asyncio.get_running_loop()
    if loop not in _limits:
        for closed in [known for known in _limits if known.is_closed()]:
            del _limits[closed]
        _limits[loop] = {}
    workers = max(1, workers)
    return _limits[loop].setdefault(workers, asyncio.Semaphore(workers))
