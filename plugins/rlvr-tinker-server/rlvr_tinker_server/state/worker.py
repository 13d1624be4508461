"""One thread for all that touches weights; the event loop is never blocked.

Requests are served in the order in which they became ready. Sampling requests of the same weights
that wait at the same time are decoded together.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from attrs import frozen

from rlvr_tinker_server.state.futures import Answer, Future

_MOST_TOGETHER = 1024  # sampling requests in one batch


@frozen(kw_only=True, eq=False)
class Job:
    """Work for a future, alone or with other jobs."""

    future: Future  # gets the answer
    together: Callable[[Sequence[Any]], Sequence[Answer | Exception]]
    """`(payloads) -> answers` in the thread; one that failed is an exception."""
    key: Hashable = None  # jobs of an equal key may be done together; None: alone
    payload: Any = None  # what `together` works on

    @classmethod
    def alone(cls, future: Future, work: Callable[[], Answer]) -> Job:
        return cls(future=future, together=lambda _: [work()])


class Worker:
    """The thread and its queue. `run` is a task of the event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="tinker-server")
        self._waiting: deque[Job] = deque()
        self._has_work = asyncio.Event()
        self._closing = threading.Event()

    def add(self, job: Job) -> None:
        """Queue a job; call it in the event loop."""
        self._waiting.append(job)
        self._has_work.set()

    def is_closing(self) -> bool:
        """Whether work under way should stop; may be asked from any thread."""
        return self._closing.is_set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._waiting:
                self._has_work.clear()
                await self._has_work.wait()
            jobs = self._next()
            if not jobs:
                continue
            answers = await loop.run_in_executor(self._threads, self._do, jobs)
            for job, answer in zip(jobs, answers, strict=True):
                if isinstance(answer, Answer):
                    job.future.finish(answer)
                else:
                    job.future.fail(answer)

    def close(self) -> None:
        """Stop the work under way and end the thread."""
        self._closing.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _next(self) -> list[Job]:
        """The first job that is still wanted, and all jobs that can be done with it."""
        first = self._waiting.popleft()
        if first.future.is_cancelled:
            return []
        if first.key is None:
            return [first]
        jobs, others = [first], deque[Job]()
        for job in self._waiting:
            if job.key == first.key and len(jobs) < _MOST_TOGETHER:
                if not job.future.is_cancelled:
                    jobs.append(job)
            else:
                others.append(job)
        self._waiting = others
        return jobs

    def _do(self, jobs: Sequence[Job]) -> Sequence[Answer | BaseException]:
        try:
            return jobs[0].together([job.payload for job in jobs])
        except Exception as error:  # the request's border: the server lives on
            return [error] * len(jobs)
