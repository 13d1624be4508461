"""Verify many trajectories in parallel, with a deadline; equal answers share one verification.

A verification that could not run is `Failed`; the run stops when their share passes the limit.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import attrs
from attrs import define, field

from rlvr.border.calls import Border, shown
from rlvr.errors import PartError, VerifierError, explain
from rlvr.log import get
from rlvr.parts import RewardFn
from rlvr.progress.status import RunStatus
from rlvr.types import (
    Failed,
    Group,
    Outcome,
    PassRate,
    Problem,
    Reward,
    ScoredGroup,
    Trajectory,
)
from rlvr.verification.verdict import verdict_of
from rlvr.verification.verdict_cache import NoStore, VerdictStore

log = get(__name__)
T = TypeVar("T")


@define
class Slots:
    """So many verifications at a time, over all calls; first come, first served."""

    count: int
    _loop: asyncio.AbstractEventLoop | None = None
    _free: asyncio.Semaphore = field(init=False)

    def here(self) -> asyncio.Semaphore:
        """The semaphore of the running event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._free = loop, asyncio.Semaphore(self.count)
        return self._free


@define
class VerificationRunner:
    """
    Judges trajectories with one reward.

    Attributes:
        salt: Enters each key of a verdict (`verdict_keys.salt_of`); None: none is kept.
        bounds: Lowest and highest value that the reward's spec declares.
        workers: Verifications at a time, over all calls (`slots`).
        deadline_s: The runner cancels a verification after this; that is a failure to run.
        max_failures: Share of the verifications of one call that may fail to run.
        running: Verifications that have not ended, for `stop`; copies (`at`) share it.
    """

    reward: RewardFn
    store: VerdictStore = field(factory=NoStore)
    salt: str | None = ""
    bounds: tuple[float, float] = (-math.inf, math.inf)
    workers: int = 1
    deadline_s: float = 900.0
    max_failures: float = 0.2
    status: RunStatus = field(factory=RunStatus)
    slots: Slots = field()
    running: set[asyncio.Task[Any]] = field(factory=set)
    _flying: dict[str, asyncio.Future[Outcome]] = field(factory=dict, init=False)

    @slots.default
    def _slots_for_workers(self) -> Slots:
        return Slots(count=self.workers)

    def at(self, step: int, history: Mapping[str, PassRate]) -> VerificationRunner:
        """This runner, with the reward of a training step (0-based)."""
        at = Border(self.reward, "reward", "at_step", promised="a RewardFn")
        with at:
            reward = self.reward.at_step(step, history)
        at.check("" if isinstance(reward, RewardFn) else shown(reward))
        return self if reward is self.reward else attrs.evolve(self, reward=reward)

    async def groups(self, groups: Sequence[Group]) -> list[ScoredGroup]:
        """
        Score all trajectories of all groups, order kept.

        Raises:
            VerifierError: More than `max_failures` of them could not be verified.
        """
        tasks = self.begin(groups)
        try:
            scored = list(await asyncio.gather(*tasks))
        finally:
            await _end(tasks)
        self.check_failures([o for group in scored for o in group.outcomes])
        return scored

    def begin(self, groups: Sequence[Group]) -> list[asyncio.Task[ScoredGroup]]:
        """Start to verify all groups: a task for each, done with its last verification."""
        pairs = [(group.problem, t) for group in groups for t in group.trajectories]
        outcomes = iter(self._start(pairs))
        return [
            self._started(_scored(group, [next(outcomes) for _ in group.trajectories]))
            for group in groups
        ]

    async def stop(self) -> None:
        """End everything that it began, also what has not run yet, and wait for its end."""
        await _end(list(self.running))

    def _started(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return task

    async def pairs(self, pairs: Sequence[tuple[Problem, Trajectory]]) -> list[Outcome]:
        """One outcome a pair, order kept; failures are `Failed`, never raised."""
        return await _all(self._start(pairs))

    def _start(self, pairs: Sequence[tuple[Problem, Trajectory]]) -> list[asyncio.Task[Outcome]]:
        self.status.begin_verifying(len(pairs))
        slots = self.slots.here()
        tasks: dict[int, asyncio.Task[Outcome]] = {}
        for place in self._longest_first(pairs):
            tasks[place] = self._started(self._one(*pairs[place], slots))
        return [tasks[place] for place in range(len(pairs))]

    def _longest_first(self, pairs: Sequence[tuple[Problem, Trajectory]]) -> Sequence[int]:
        """
        The order in which verifications begin: the longest first, else the given order.

        What begins last then ends soon after, and no worker waits for a straggler.
        """
        reward = self.reward
        try:
            with Border(reward, "reward", "expected_seconds", promised="seconds as a number"):
                expected = [float(reward.expected_seconds(problem, t)) for problem, t in pairs]
        except PartError as error:  # an order is no reason to lose a verdict
            log.warning("order_not_known", reason=str(error))
            return range(len(pairs))
        return sorted(range(len(pairs)), key=lambda place: -expected[place])

    def check_failures(self, outcomes: Sequence[Outcome]) -> None:
        """Raise `VerifierError` when too many of the outcomes are failures to run."""
        failed = [o for o in outcomes if isinstance(o, Failed)]
        if failed and len(failed) > self.max_failures * len(outcomes):
            raise VerifierError(
                explain(
                    f"{len(failed)} of {len(outcomes)} verifications could not run "
                    f"(at most {self.max_failures:.0%} may).",
                    f"found: {failed[0].reason}",
                    "try: rlvr doctor; verify.max_failures=SHARE allows more",
                )
            )

    async def _one(
        self, problem: Problem, trajectory: Trajectory, slots: asyncio.Semaphore
    ) -> Outcome:
        try:
            return await self._stored(problem, trajectory, slots)
        finally:
            self.status.verify_done += 1

    async def _stored(
        self, problem: Problem, trajectory: Trajectory, slots: asyncio.Semaphore
    ) -> Outcome:
        if trajectory.finish == "error":
            return Failed(reason=f"the rollout broke off: {trajectory.error}")
        try:
            key = self._key(problem, trajectory)
        except PartError as error:
            return self._unverified(problem, str(error))
        if key is None:
            async with slots:
                return await self._verify(problem, trajectory)
        if (known := self.store.get(key)) is not None:
            self.status.cached += 1
            return known
        if (flying := self._flying.get(key)) is not None:
            return _as_cached(await asyncio.shield(flying))
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._flying[key] = future
        try:
            async with slots:
                outcome = await self._verify(problem, trajectory)
            if not isinstance(outcome, Failed):
                self.store.put(key, outcome)
            future.set_result(outcome)
            return outcome
        finally:
            self._flying.pop(key, None)
            if not future.done():
                future.cancel()

    def _key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        """The author's key with what the core knows of the reward (`verdict_keys`)."""
        if self.salt is None:
            return None
        at = Border(
            self.reward, "reward", "verdict_key", promised="a text or None", problem=problem.id
        )
        with at:
            key = self.reward.verdict_key(problem, trajectory)
        at.check("" if key is None or isinstance(key, str) else shown(key))
        if key is None:
            return None
        kind = type(self.reward)
        whole = f"{self.salt}\n{kind.__module__}.{kind.__qualname__}\n{key}"
        return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()

    def _unverified(self, problem: Problem, reason: str) -> Failed:
        log.warning("verification_failed", problem=problem.id, reason=reason)
        return Failed(reason=reason)

    async def _verify(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        begun = time.monotonic()
        with self.status.verifying(problem.id):
            outcome = await verdict_of(
                self.reward,
                problem,
                trajectory,
                deadline_s=self.deadline_s,
                bounds=self.bounds,
            )
        self.status.verified += 1
        if isinstance(outcome, Failed):
            return self._unverified(problem, outcome.reason)
        if isinstance(outcome, Reward) and outcome.cost_s == 0.0:
            outcome = attrs.evolve(outcome, cost_s=time.monotonic() - begun)
        return outcome


async def _scored(group: Group, outcomes: Sequence[asyncio.Task[Outcome]]) -> ScoredGroup:
    return ScoredGroup(
        problem=group.problem, trajectories=group.trajectories, outcomes=await _all(outcomes)
    )


async def _all(tasks: Sequence[asyncio.Task[Outcome]]) -> list[Outcome]:
    """Their results; where one or the waiting breaks off, the others end before it goes on."""
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        await _end(tasks)


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _as_cached(outcome: Outcome) -> Outcome:
    if isinstance(outcome, Reward):
        return attrs.evolve(outcome, cached=True, cost_s=0.0)
    return outcome
