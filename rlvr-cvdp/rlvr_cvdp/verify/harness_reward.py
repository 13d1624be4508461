"""What the proxy and the second opinion ask of the full reward."""

from __future__ import annotations

import abc

from rlvr import Problem, Reward, RewardFn, Trajectory
from rlvr_cvdp.launch.service import RunSettings
from rlvr_cvdp.problem import CvdpProblem


class HarnessReward(RewardFn):
    """A reward that runs a problem's own harness."""

    @abc.abstractmethod
    def run_settings(self, record: CvdpProblem) -> RunSettings:
        """Where and how it runs a harness, where no calibration says otherwise."""

    @abc.abstractmethod
    def with_seed(self, seed: int) -> HarnessReward:
        """The same with one other seed; shares the sandbox."""

    @abc.abstractmethod
    async def by_proxy(self, problem: Problem, trajectory: Trajectory, kind: str) -> Reward | None:
        """What the compiler alone says; None where it has no say in this problem."""
