"""The trajectories of one problem, before and after their verification."""

from __future__ import annotations

from itertools import compress

import attrs
from attrs import field, frozen

from rlvr.types.frozen import as_tuple
from rlvr.types.problem import Problem
from rlvr.types.reward import Outcome, Reward
from rlvr.types.trajectory import Trajectory


@frozen(kw_only=True)
class Group:
    """G trajectories of one problem."""

    problem: Problem
    trajectories: tuple[Trajectory, ...] = field(converter=as_tuple)


@frozen(kw_only=True)
class ScoredGroup:
    """A group with one outcome for each trajectory."""

    problem: Problem
    trajectories: tuple[Trajectory, ...] = field(converter=as_tuple)
    outcomes: tuple[Outcome, ...] = field(converter=as_tuple)

    def __attrs_post_init__(self) -> None:
        if len(self.trajectories) != len(self.outcomes):
            raise ValueError("a scored group needs one outcome for each trajectory")

    @property
    def rewards(self) -> tuple[Reward, ...]:
        """The outcomes that are rewards, in order."""
        return tuple(o for o in self.outcomes if isinstance(o, Reward))

    def scored_only(self) -> ScoredGroup:
        """The same group without the trajectories that have no reward."""
        kept = [isinstance(outcome, Reward) for outcome in self.outcomes]
        return attrs.evolve(
            self,
            trajectories=compress(self.trajectories, kept),
            outcomes=compress(self.outcomes, kept),
        )
