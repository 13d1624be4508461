"""The policy that samples, opened once for each version of the weights, and the probe of each."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from attrs import define, evolve, field

from rlvr.assembly.recipe import Recipe, draws_live
from rlvr.border.promises import drawer_of, policy_of
from rlvr.parts import Episode, Policy
from rlvr.training.mismatch import Parity, check_parity, probe_again
from rlvr.training.rollout_queue import RolloutQueue
from rlvr.training.weight_sync import SyncWatch
from rlvr.types import (
    Completion,
    Datum,
    FloatArray,
    GenerateRequest,
    Group,
    Problem,
    SamplingParams,
    Trajectory,
)

PROBED = 4
"""Trajectories compared after each weight sync."""

DECLARED = frozenset(inspect.get_annotations(Policy)) - {"kind"}
"""What a policy says of itself."""


@define(kw_only=True)
class SamplingPolicy:
    """
    Stands for the newest weights, and for those after them where steps overlap.

    Attributes:
        parity: The last mismatch that was measured.
        probed: `RolloutQueue.updates` of the weights that it was measured with.
    """

    recipe: Recipe
    queue: RolloutQueue
    parity: Parity | None = None
    probed: int = -1
    _syncs: SyncWatch = field(factory=SyncWatch, init=False)
    _policy: Policy | None = field(default=None, init=False)
    _policy_of: int = field(default=-1, init=False)
    _asking: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    async def newest(self) -> tuple[Policy, int]:
        """The policy, once no update is under way, and `RolloutQueue.updates` of it."""
        async with self.queue.updating:
            policy = await self._now()
            if self.queue.staleness and policy.is_strict:
                policy = _Following(self, policy)
            return policy, self.queue.updates

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[Policy]:
        """The backend's policy; its weights stay in the block."""
        async with self.queue.keeping_weights():
            yield await self._now()

    async def _now(self) -> Policy:
        """The backend's policy, asked for once a version; no update may be under way."""
        backend, now = self.recipe.backend, self.queue.updates
        async with self._asking:
            if self._policy is None or self._policy_of != now:
                is_live = draws_live(self.recipe.sampler, backend, self.queue.staleness)
                self._policy = await policy_of(backend, is_live=is_live)
                self._policy_of = now
            return self._policy

    async def probe(self, groups: Sequence[Group], params: SamplingParams, updates: int) -> None:
        """
        Measure the mismatch once a version, on groups that weights of `updates` drew.

        Raises:
            BackendError: Sampler and trainer are not the same policy, or a weight sync was lost.
        """
        options, backend = self.recipe.parity, self.recipe.backend
        if options.threshold is None or not self.recipe.sampler.draws_from_policy:
            return
        async with self.queue.updating:
            if self.probed == self.queue.updates:
                return
            policy = await policy_of(backend)
            if self.queue.updates != updates:  # the weights are no longer those that sampled
                drawer = await drawer_of(self.recipe.sampler, policy)
                groups = await probe_again(drawer, groups, PROBED, params)
            # The sampler first, which holds the weights: where it shares its memory with the
            # trainer, scoring later would hand them over once more.
            await self._syncs.check(backend, self.recipe.sampler, policy, groups)
            self.parity = await check_parity(
                backend, groups, probe=PROBED, threshold=options.threshold
            )
            self.probed = self.queue.updates if self.parity else -1


class _Following(Policy):
    """
    Answers each call with the newest weights, which do not change before the call has ended.

    For strict policies where steps overlap: a rollout's later turns may be drawn by newer weights,
    and each completion names its own. `version` and `digest` are those of the last call begun.
    """

    def __init__(self, source: SamplingPolicy, policy: Policy) -> None:
        self._source = source
        for name in DECLARED:
            setattr(self, name, getattr(policy, name))
        self.is_strict = False  # it waits

    async def generate(self, request: GenerateRequest) -> Completion:
        """One completion; raises as the backend's policy does."""
        async with self._newest() as policy:
            return evolve(await policy.generate(request), versions=(policy.version,))

    async def generate_many(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        """All by the same weights."""
        async with self._newest() as policy:
            drawn = await policy.generate_many(requests)
            return [evolve(one, versions=(policy.version,)) for one in drawn]

    async def rollout(
        self, problem: Problem, episode: Callable[[], Episode], params: SamplingParams, index: int
    ) -> Trajectory:
        """A whole trajectory by the same weights."""
        async with self._newest() as policy:
            return await policy.rollout(problem, episode, params, index)

    async def score(self, data: Sequence[Datum]) -> list[FloatArray] | None:
        """By the newest weights."""
        async with self._newest() as policy:
            return await policy.score(data)

    async def export_weights(self, directory: Path) -> None:
        """Write the newest weights: `version` and `digest` are theirs when it is done."""
        async with self._newest() as policy:
            await policy.export_weights(directory)
        self.version, self.digest = policy.version, policy.digest  # others may have begun since

    @asynccontextmanager
    async def _newest(self) -> AsyncIterator[Policy]:
        async with self._source.kept() as policy:
            self.version, self.digest = policy.version, policy.digest
            yield policy
