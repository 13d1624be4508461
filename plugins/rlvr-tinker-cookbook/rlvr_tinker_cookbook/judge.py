"""The task and the verifier beside the cookbook's loop: one of each a process, in a thread.

The cookbook has no place to open and close what environments share (a sandbox, an engine), and
may run its rollouts in event loops that come and go. So task and verifier live in a thread with a
loop of their own, from the first question until the process ends.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from typing import TypeVar

from anyio.from_thread import start_blocking_portal
from attrs import frozen

from rlvr import (
    Failed,
    Outcome,
    Problem,
    Trajectory,
    VerifierError,
    Verifying,
    counted,
    open_verifying,
)

T = TypeVar("T")

RECENT = 64
"""Verifications that the share of failures is taken over."""

ENOUGH = 10
"""Verifications from which on that share says something."""


@frozen(kw_only=True)
class Wanted:
    """
    Which task, by the words of the command line. Pickles, so that other processes open their own.

    Attributes:
        plugin: Plugin whose default task is used, or the task's name.
        dataset: Path of the data set; "": the embedded one.
        options: `key=value` texts.
    """

    plugin: str
    dataset: str = ""
    options: tuple[str, ...] = ()

    def open(self) -> AbstractAsyncContextManager[Verifying]:
        """The task and its verifier."""
        dataset = Path(self.dataset) if self.dataset else None
        return open_verifying(self.plugin, dataset=dataset, options=self.options)


class AnswerVerifier:
    """
    An open task with its verifier.

    Args:
        opening: Gives what is opened in the judge's thread, and closed there at the end.

    Attributes:
        verifying: What was opened. Its methods are to be called in the judge's loop: `here`.
    """

    def __init__(self, opening: Callable[[], AbstractAsyncContextManager[Verifying]]) -> None:
        self._recent: deque[bool] = deque(maxlen=RECENT)  # whether a verification failed to run
        with ExitStack() as stack:
            self._loop = stack.enter_context(start_blocking_portal(name="judge"))
            opened = self._loop.wrap_async_context_manager(opening())
            self.verifying = stack.enter_context(opened)
            self._open = stack.pop_all()
        atexit.register(self.close)

    async def here(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work()`, done in the judge's loop."""
        return await asyncio.wrap_future(self._loop.start_task_soon(work))

    async def verify(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        """
        The verdict on one trajectory.

        Raises:
            VerifierError: Too many of the last verifications could not run.
            PrerequisiteError: What the verifier needs of the machine is gone.
        """
        (outcome,) = await self.here(lambda: self.verifying.verify([(problem, trajectory)]))
        self._recent.append(isinstance(outcome, Failed))
        failed, limit = sum(self._recent), self.verifying.max_failures
        is_known = len(self._recent) >= ENOUGH
        if isinstance(outcome, Failed) and is_known and failed > limit * len(self._recent):
            raise VerifierError(
                f"{failed} of the last {counted(len(self._recent), 'verification')} could not run "
                f"(at most {limit:.0%} may).",
                f"found: {outcome.reason}",
                "try: rlvr doctor; option verify.max_failures=SHARE allows more",
            )
        return outcome

    def close(self) -> None:
        """Close what was opened and end the thread; a second call finds nothing to do."""
        self._open.close()


_JUDGES: dict[Wanted, AnswerVerifier] = {}
_OPENING = threading.Lock()


def judge_of(wanted: Wanted) -> AnswerVerifier:
    """The process's judge of a task, opened by the first who asks."""
    with _OPENING:
        if wanted not in _JUDGES:
            _JUDGES[wanted] = AnswerVerifier(wanted.open)
        return _JUDGES[wanted]
