"""Verify many trajectories in parallel, with a deadline; equal answers share one verification.

A verification that could not run is `Failed`; the run stops when their share passes the limit.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from attrs import Factory, define, field

from rlvr.border.abilities import key_of, reward_at, seconds_of
from rlvr.border.calls import spec_of
from rlvr.concurrency import end
from rlvr.errors import PartError, VerifierError, counted
from rlvr.log import get
from rlvr.parts import RewardFn
from rlvr.progress.status import RunStatus
from rlvr.types import Failed, Group, Outcome, PassRate, Problem, Reward, ScoredGroup, Trajectory
from rlvr.verification.slots import Rank, SingleFlight, Slots
from rlvr.verification.verdict import verdict_of
from rlvr.verification.verdict_cache import VerdictStore

log = get(__name__)

_VARIES = re.compile(r"'[^']*'|\"[^\"]*\"|\b(True|False)\b|[-+]?\d[\w.+-]*")
"""What differs between reasons of one kind: quoted texts, numbers, truth values."""
_KINDS = 5
"""Kinds of failures that are shown."""
_SOON_S = 10.0
"""A failure within this time is shown when it is known whether it ends the command."""


@define
class _Kind:
    """Failures of one kind: the first of them, how many, and whether that was shown."""

    problem: str
    reason: str
    count: int = 0
    is_told: bool = False


@define
class VerificationRunner:
    """
    Judges trajectories with one reward.

    Attributes:
        salt: Enters each key of a verdict (`verdict_keys.salt_of`); None: none is kept.
        bounds: Lowest and highest value that the reward's spec declares.
        workers: Verifications at a time, over all calls (`slots`).
        deadline_s: The runner cancels a verification after this, a failure to run (`verdict_of`).
        max_failures: Share of the verifications of one call that may fail to run.
        running: Verifications that have not ended, for `stop`; copies (`at`) share it.
        failures: Failures by kind; copies share it.
        begun: When the first verification could begin, `time.monotonic()`.
    """

    reward: RewardFn
    store: VerdictStore = field(factory=VerdictStore)
    salt: str | None = ""
    bounds: tuple[float, float] = (-math.inf, math.inf)
    workers: int = 1
    deadline_s: float = 900.0
    max_failures: float = 0.2
    status: RunStatus = field(factory=RunStatus)
    slots: Slots = field(default=Factory(lambda self: Slots(count=self.workers), takes_self=True))
    running: set[asyncio.Task[Any]] = field(factory=set)
    failures: dict[str, _Kind] = field(factory=dict)
    begun: float = field(factory=time.monotonic)
    _flying: SingleFlight[Outcome] = field(factory=SingleFlight, init=False)

    def at(self, step: int, history: Mapping[str, PassRate]) -> VerificationRunner:
        """This runner with the reward as it is at a training step (0-based)."""
        reward = reward_at(self.reward, step, history)
        return self if reward is self.reward else attrs.evolve(self, reward=reward)

    async def groups(
        self, groups: Sequence[Group], *, is_checked: bool = True
    ) -> list[ScoredGroup]:
        """
        Score all trajectories of all groups, order kept.

        Args:
            groups: To verify.
            is_checked: False keeps the results whatever the share of failures.

        Raises:
            VerifierError: More than `max_failures` of them could not be verified.
        """
        outcomes = await self.pairs([(g.problem, t) for g in groups for t in g.trajectories])
        if is_checked:
            self.check_failures(outcomes)
        rest = iter(outcomes)
        return [
            ScoredGroup(
                problem=group.problem,
                trajectories=group.trajectories,
                outcomes=[next(rest) for _ in group.trajectories],
            )
            for group in groups
        ]

    async def pairs(self, pairs: Sequence[tuple[Problem, Trajectory]]) -> list[Outcome]:
        """One outcome a pair, order kept; failures are `Failed`, never raised."""
        tasks = [self.begin(*pair) for pair in pairs]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            await end(tasks)

    def begin(
        self, problem: Problem, trajectory: Trajectory, *, rank: Rank = ()
    ) -> asyncio.Task[Outcome]:
        """
        Start to verify a trajectory.

        Verifications that wait for a worker begin in the order of their ranks; of equal ranks the
        longest begins first, so that no worker waits for a straggler at the end.
        """
        self.status.begin_verifying(1)
        place = (*rank, -self._expected(problem, trajectory))
        task = asyncio.create_task(self._one(problem, trajectory, place))
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return task

    async def stop(self) -> None:
        """Cancel all verifications, also those that have not run yet, and wait for their end."""
        await end(list(self.running))

    def _expected(self, problem: Problem, trajectory: Trajectory) -> float:
        try:
            return seconds_of(self.reward, problem, trajectory)
        except PartError as error:  # an order is no reason to lose a verdict
            log.warning("order_not_known", reason=str(error))
            return 0.0

    def check_failures(self, outcomes: Sequence[Outcome]) -> None:
        """Raise `VerifierError` if too many of the outcomes are failures to run, else show them."""
        failed = [o for o in outcomes if isinstance(o, Failed)]
        if failed and len(failed) > self.max_failures * len(outcomes):
            more = "; verify.max_failures=SHARE allows more"
            if len(self.failures) == 1:  # the error says it
                self.failures.clear()
            raise VerifierError(
                f"{len(failed)} of {counted(len(outcomes), 'verification')} could not run "
                f"(at most {self.max_failures:.0%} may).",
                f"found: {failed[0].reason}",
                f"try: {self._cure()}{more if len(failed) < len(outcomes) else ''}",
            )
        self._tell_first()

    def _cure(self) -> str:
        spec = spec_of(self.reward, "reward")
        return f"rlvr doctor; rlvr plugins check {'NAME' if spec is None else spec.provider}"

    def _tell_first(self) -> None:
        """Log the first failure of each kind, once."""
        for kind in list(self.failures.values())[:_KINDS]:
            if not kind.is_told:
                kind.is_told = True
                log.warning("verification_failed", problem=kind.problem, reason=kind.reason)

    def tell_failures(self) -> None:
        """Log how often each kind of failure came, with the first of it if that was not logged."""
        for kind in list(self.failures.values())[:_KINDS]:
            if kind.count > 1 or not kind.is_told:
                told = {} if kind.is_told else {"reason": kind.reason, "do": self._cure()}
                log.warning("verifications_failed", count=kind.count, first=kind.problem, **told)
        if len(self.failures) > _KINDS:
            rest = sum(kind.count for kind in list(self.failures.values())[_KINDS:])
            log.warning("verifications_failed", count=rest, reason="others")

    async def _one(self, problem: Problem, trajectory: Trajectory, rank: Rank) -> Outcome:
        try:
            return await self._stored(problem, trajectory, rank)
        finally:
            self.status.verify_done += 1
            if self.failures and time.monotonic() - self.begun > _SOON_S:
                self._tell_first()

    async def _stored(self, problem: Problem, trajectory: Trajectory, rank: Rank) -> Outcome:
        if trajectory.finish == "error":
            return Failed(reason=f"the rollout broke off: {trajectory.error}")
        try:
            key = self._key(problem, trajectory)
        except PartError as error:
            return self._unverified(problem, str(error))
        if key is None:
            return await self._verify(problem, trajectory, rank)
        if (known := self.store.get(key)) is not None:
            self.status.cached += 1
            return known
        is_first = key not in self._flying
        outcome = await self._flying.done(key, lambda: self._verify(problem, trajectory, rank, key))
        return outcome if is_first else _as_cached(outcome)

    def _key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        """The reward's own key together with the salt and its class (`verdict_keys`)."""
        if self.salt is None:
            return None
        key = key_of(self.reward, problem, trajectory)
        if key is None:
            return None
        kind = type(self.reward)
        whole = f"{self.salt}\n{kind.__module__}.{kind.__qualname__}\n{key}"
        return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()

    def _unverified(self, problem: Problem, reason: str) -> Failed:
        """The failure, counted with those of its kind."""
        bare = reason.removeprefix(f"{problem.id}: ")
        same = re.sub(rf"(?<!\w){re.escape(problem.id)}(?!\w)", "...", bare)
        self.failures.setdefault(_VARIES.sub("...", same), _Kind(problem.id, bare)).count += 1
        log.debug("verification_failed", problem=problem.id, reason=reason)
        return Failed(reason=reason)

    async def _verify(
        self, problem: Problem, trajectory: Trajectory, rank: Rank, key: str | None = None
    ) -> Outcome:
        """The verdict, kept under the key when there is one."""
        async with self.slots.taken(rank):
            begun = time.monotonic()
            with self.status.verifying(problem.id):
                outcome = await verdict_of(
                    self.reward, problem, trajectory, deadline_s=self.deadline_s, bounds=self.bounds
                )
        self.status.verified += 1
        if isinstance(outcome, Failed):
            return self._unverified(problem, outcome.reason)
        if isinstance(outcome, Reward) and outcome.cost_s == 0.0:
            outcome = attrs.evolve(outcome, cost_s=time.monotonic() - begun)
        if key is not None:
            self.store.put(key, outcome)
        return outcome


def _as_cached(outcome: Outcome) -> Outcome:
    if isinstance(outcome, Reward):
        return attrs.evolve(outcome, cached=True, cost_s=0.0)
    return outcome
