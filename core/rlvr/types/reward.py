"""The outcomes of a verification, and the group of answers to one problem with their outcomes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import compress
from typing import Any, TypeAlias

import attrs
from attrs import field, frozen

from rlvr.types.frozen import as_tuple, frozen_map
from rlvr.types.problem import Problem
from rlvr.types.trajectory import Trajectory


@frozen(kw_only=True)
class Probe:
    """
    An answer whose verdict is known beforehand: what `rlvr audit` puts to a verifier.

    Attributes:
        kind: What sort of answer it is: "empty", "operator"; "initial" is what the policy was
            given, unchanged.
        is_right: Whether a verifier has to accept it.
        note: What a person needs to find the place.
        is_mutant: Made of the reference by one small change; counts for a verifier's strength.
    """

    kind: str
    trajectory: Trajectory
    is_right: bool = False
    note: str = ""
    is_mutant: bool = False


@frozen(kw_only=True)
class Reward:
    """
    A verdict. `value` feeds the advantage; `score01` feeds filters, pass@k and curves.

    `score01` is 1.0 exactly when the answer is right. `components` are the named parts of
    `value`; `evidence` is what a person needs to believe it (JSON values only). `cost_s` is what
    the verification took, in seconds; 0 where `cached`. `is_proxy` marks the verdict of a cheaper
    stand-in (`at_step`), which never knows that an answer is right: pass rates leave it out.
    """

    value: float
    score01: float
    components: Mapping[str, float] = field(factory=dict, converter=frozen_map)
    tests_passed: int | None = None
    tests_total: int | None = None
    evidence: Mapping[str, Any] = field(factory=dict, converter=frozen_map, repr=False)
    cost_s: float = 0.0
    cached: bool = False
    is_proxy: bool = False

    def __attrs_post_init__(self) -> None:
        if self.is_proxy and self.score01 != 0.0:
            raise ValueError(f"a proxy cannot say how right an answer is: score01={self.score01}")
        try:
            is_right = math.isfinite(self.value) and 0.0 <= self.score01 <= 1.0
        except TypeError:  # no number
            is_right = False
        if not is_right:
            raise ValueError(
                f"a reward needs a finite value and a score01 in 0..1, "
                f"got value={self.value!r}, score01={self.score01!r}"
            )


@frozen(kw_only=True)
class Unscorable:
    """The verifier ran but no verdict exists for this answer. Not a reward: leaves the baseline."""

    reason: str
    evidence: Mapping[str, Any] = field(factory=dict, converter=frozen_map, repr=False)


@frozen(kw_only=True)
class Failed:
    """The verifier could not run (infrastructure). Not a reward: leaves the baseline, counted."""

    reason: str


Outcome: TypeAlias = Reward | Unscorable | Failed


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
