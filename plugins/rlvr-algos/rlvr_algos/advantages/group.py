"""Advantage `group`: credit relative to the other trajectories of the same problem."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rlvr_algos.advantages.credit import Credit
from rlvr_algos.shaping.config import GroupAdvantageConfig


class GroupAdvantage(Credit):
    """
    Advantage of each trajectory: its reward minus its group's mean, over the group's deviation.

    `A_i = (r_i - mean(r)) / (std(r) + epsilon)` (GRPO, arXiv:2402.03300, outcome supervision).
    The deviation is the sample's (divisor G - 1), as in the peers. `normalise_std=False` leaves
    it out, because it up-weights groups that are almost always solved or failed (Dr. GRPO,
    arXiv:2503.20783). A group of equal rewards yields exact zeros.
    """

    name = "group"
    config_class = GroupAdvantageConfig

    def raw(self, rewards_P_G: Sequence[Sequence[float]]) -> list[NDArray[np.float64]]:
        """Shape (P, G), unit: reward, or none when normalised; a group looks at no other one."""
        return [np.array(self._row(rewards_G)) for rewards_G in rewards_P_G]

    def _row(self, rewards_G: Sequence[float]) -> list[float]:
        if min(rewards_G) == max(rewards_G):
            return [0.0] * len(rewards_G)
        mean = math.fsum(rewards_G) / len(rewards_G)
        centred_G = [reward - mean for reward in rewards_G]
        if not self._config.normalise_std:
            return centred_G
        scale = statistics.stdev(rewards_G) + self._config.epsilon
        return [value / scale for value in centred_G]
