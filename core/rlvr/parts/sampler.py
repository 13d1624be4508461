"""A sampler: turns problems into groups of trajectories."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rlvr.parts.base import Part
from rlvr.types import Group, Problem, SamplingParams

if TYPE_CHECKING:
    from rlvr.parts.backend import Policy
    from rlvr.parts.task import Task


class Sampler(Part):
    """
    Turns problems into groups of trajectories.

    Attributes:
        draws_from_policy: False where trajectories come from elsewhere (references): their
            logprobs are then zeros, and importance-weighted losses refuse them.
    """

    kind: ClassVar[str] = "sampler"

    draws_from_policy: bool = True

    @abc.abstractmethod
    async def sample(
        self, policy: Policy, task: Task, problems: Sequence[Problem], params: SamplingParams
    ) -> list[Group]:
        """G trajectories a problem, order kept; one failing rollout does not sink its group."""
