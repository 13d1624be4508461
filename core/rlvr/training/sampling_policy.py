"""The policy that samples, asked for once a version, and the probe of each version."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from rlvr.assembly.recipe import Recipe
from rlvr.border.promises import policy_of
from rlvr.parts import Policy
from rlvr.training.mismatch import Parity, check_parity, probe_again
from rlvr.training.rollout_queue import RolloutQueue
from rlvr.training.weight_sync import SyncWatch
from rlvr.types import Group, SamplingParams

PROBED = 4
"""Trajectories compared after each weight sync."""


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

    async def newest(self) -> tuple[Policy, int]:
        """The policy, once no update is under way, and `RolloutQueue.updates` of it."""
        backend = self.recipe.backend
        async with self.queue.updating:
            now = self.queue.updates
            if self._policy is None or self._policy_of != now:
                is_live = self.queue.staleness > 0 and backend.capabilities.partial_rollouts
                self._policy = await policy_of(backend, is_live=is_live)
                self._policy_of = now
            return self._policy, now

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
                groups = await probe_again(policy, groups, PROBED, params)
            self.parity = await check_parity(
                backend, groups, probe=PROBED, threshold=options.threshold
            )
            self.probed = self.queue.updates if self.parity else -1
            await self._syncs.check(backend, self.recipe.sampler, policy, groups)
