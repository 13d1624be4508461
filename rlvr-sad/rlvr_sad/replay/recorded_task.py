"""A task of recorded trajectories, as the sampler `replay` reads it."""

from __future__ import annotations

import abc

from rlvr import Problem, Task
from rlvr_sad.sessions.cache import TrajectoryCache
from rlvr_sad.trajectory import AgentTrajectory


class RecordedTask(Task):
    """
    A task of recorded trajectories.

    Attributes:
        cache: Keeps results of reading and tokenising, by content.
    """

    is_offline = True

    cache: TrajectoryCache

    @abc.abstractmethod
    def trajectory(self, problem: Problem) -> AgentTrajectory:
        """The whole trajectory of a problem."""
