"""A sampler: turns a problem into trajectories."""

from __future__ import annotations

import abc
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, ClassVar

from rlvr.parts.base import Part
from rlvr.types import Problem, SamplingParams, Trajectory

if TYPE_CHECKING:
    from rlvr.parts.backend import Policy
    from rlvr.parts.task import Task


class Sampler(Part):
    """
    Turns a problem into trajectories.

    Attributes:
        draws_from_policy: False where trajectories come from elsewhere (references): their
            logprobs are then zeros, and importance-weighted losses refuse them.
        exports_weights: It hands the policy's weights to a server (`Policy.export_weights`). Where
            steps overlap it is given policies of one version, never `Backend.live_policy`.
    """

    kind: ClassVar[str] = "sampler"

    draws_from_policy: bool = True
    exports_weights: bool = False

    @abc.abstractmethod
    def sample(
        self, policy: Policy, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        """
        The trajectories of a problem, each as soon as it has ended, in any order.

        Where they are drawn from the policy there are `params.group_size` of them; `index` is the
        place of each in its group. Their draws follow from `params.seed`, the problem and the
        index, never from the order of calls. A rollout that fails is a trajectory with finish
        "error". Many problems are sampled at the same time.
        """

    async def drawn_by(self, policy: Policy) -> Policy:
        """The policy that draws in place of this one: itself, or a server that has its weights."""
        return policy

    def why_empty(self) -> str:
        """Why a batch of problems has no trajectory at all; "" if that is not an error."""
        return ""
