"""Scoring many trajectories: bounded parallel, deadline, store, duplicates joined.

The one place where a verifier is called. Its infrastructure failures become `Failed` here and
nowhere else become anything; a share of them past the limit stops the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

import attrs
from attrs import define, field

from rlvr.errors import PrerequisiteError, VerifierError, explain
from rlvr.log import get
from rlvr.parts import Cacheable, Costed, RewardFn, Scheduled
from rlvr.run.board import Board
from rlvr.run.store import NoStore, VerdictStore
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

log = get(__name__)


@define
class Scorer:
    """
    Judges trajectories with one reward.

    Attributes:
        workers: Verifications at a time.
        deadline_s: The runner cancels a verification after this; that is a failure to run.
        max_failures: Share of the verifications of one call that may fail to run.
    """

    reward: RewardFn
    store: VerdictStore = field(factory=NoStore)
    workers: int = 1
    deadline_s: float = 900.0
    max_failures: float = 0.2
    board: Board = field(factory=Board)
    _flying: dict[str, asyncio.Future[Outcome]] = field(factory=dict, init=False)
    _keys: Cacheable | None = field(init=False)

    @_keys.default
    def _reward_with_keys(self) -> Cacheable | None:
        return self.reward if isinstance(self.reward, Cacheable) else None

    def at(self, step: int, history: Mapping[str, PassRate]) -> Scorer:
        """This scorer with the reward that is scheduled for a step (0-based) of training."""
        if not isinstance(self.reward, Scheduled):
            return self
        return attrs.evolve(self, reward=self.reward.scheduled(step, history))

    async def groups(self, groups: Sequence[Group]) -> list[ScoredGroup]:
        """
        Score all trajectories of all groups, order kept.

        Raises:
            VerifierError: More than `max_failures` of them could not be verified.
        """
        pairs = [(group.problem, t) for group in groups for t in group.trajectories]
        outcomes = iter(await self.pairs(pairs))
        scored = [
            ScoredGroup(
                problem=group.problem,
                trajectories=group.trajectories,
                outcomes=[next(outcomes) for _ in group.trajectories],
            )
            for group in groups
        ]
        self.check_failures([o for group in scored for o in group.outcomes])
        return scored

    async def pairs(self, pairs: Sequence[tuple[Problem, Trajectory]]) -> list[Outcome]:
        """One outcome a pair, order kept; failures are `Failed`, never raised."""
        slots = asyncio.Semaphore(self.workers)
        self.board.verify_total, self.board.verify_done = len(pairs), 0
        tasks: dict[int, asyncio.Task[Outcome]] = {}
        for place in self._longest_first(pairs):
            tasks[place] = asyncio.create_task(self._one(*pairs[place], slots))
        try:
            return list(await asyncio.gather(*(tasks[place] for place in range(len(pairs)))))
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    def _longest_first(self, pairs: Sequence[tuple[Problem, Trajectory]]) -> Sequence[int]:
        """
        The order in which verifications begin: the longest first, else the given order.

        What begins last then ends soon after, and no worker waits for a straggler.
        """
        reward = self.reward
        if not isinstance(reward, Costed):
            return range(len(pairs))
        expected = [reward.expected_s(problem, trajectory) for problem, trajectory in pairs]
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
            self.board.verify_done += 1

    async def _stored(
        self, problem: Problem, trajectory: Trajectory, slots: asyncio.Semaphore
    ) -> Outcome:
        if trajectory.finish == "error":
            return Failed(reason=f"the rollout broke off: {trajectory.error}")
        key = None if self._keys is None else self._keys.verdict_key(problem, trajectory)
        if key is None:
            async with slots:
                return await self._verify(problem, trajectory)
        if (known := self.store.get(key)) is not None:
            self.board.cached += 1
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

    async def _verify(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        begun = time.monotonic()
        try:
            with self.board.verifying(problem.id):
                outcome = await asyncio.wait_for(
                    self.reward(problem, trajectory), timeout=self.deadline_s
                )
        except TimeoutError:
            outcome = Failed(
                reason=f"{problem.id}: the verifier did not answer within {self.deadline_s:g} s"
            )
        except PrerequisiteError:
            raise
        except VerifierError as error:
            outcome = Failed(reason=f"{problem.id}: {error}")
        self.board.verified += 1
        if isinstance(outcome, Failed):
            log.warning("verification_failed", problem=problem.id, reason=outcome.reason)
        elif isinstance(outcome, Reward) and outcome.cost_s == 0.0:
            outcome = attrs.evolve(outcome, cost_s=time.monotonic() - begun)
        return outcome


def _as_cached(outcome: Outcome) -> Outcome:
    if isinstance(outcome, Reward):
        return attrs.evolve(outcome, cached=True, cost_s=0.0)
    return outcome
