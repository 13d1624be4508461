"""Advantages `group` and `rloo`: credit relative to the other trajectories of the problem."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rlvr_algos.advantages.credit import Credit
from rlvr_algos.shaping.config import CreditConfig, GroupAdvantageConfig, RlooAdvantageConfig


class GroupAdvantage(Credit):
    """
    Advantage of each trajectory: its reward minus its group's mean, over the group's deviation.

    `A_i = (r_i - mean(r)) / (std(r) + epsilon)` (GRPO, arXiv:2402.03300, outcome supervision).
    The deviation is the sample's (divisor G - 1), as in the peers. `normalise_std=False` leaves
    it out, because it up-weights groups that are almost always solved or failed (Dr. GRPO,
    arXiv:2503.20783). A group of equal rewards yields exact zeros.
    """

    name = "group"
    config_class: ClassVar[type[CreditConfig]] = GroupAdvantageConfig

    def raw(self, rewards_P_G: Sequence[Sequence[float]]) -> list[NDArray[np.float64]]:
        """Shape (P, G), unit: reward, or none when normalised; a group looks at no other one."""
        return [self.row(np.array(rewards_G)) for rewards_G in rewards_P_G]

    def row(self, rewards_G: NDArray[np.float64]) -> NDArray[np.float64]:
        """Credit of one group."""
        if rewards_G.min() == rewards_G.max():
            return np.zeros(len(rewards_G))
        centred_G = rewards_G - math.fsum(rewards_G) / len(rewards_G)
        if not self._config.normalise_std:
            return centred_G
        return centred_G / (statistics.stdev(rewards_G.tolist()) + self._config.epsilon)


class RlooAdvantage(GroupAdvantage):
    """
    Advantage of each trajectory: its reward minus the mean of its G - 1 companions (leave one out).

    `A_i = r_i - sum_{j != i} r_j / (G - 1) = G / (G - 1) * (r_i - mean(r))`: the baseline does not
    contain r_i, so the gradient is unbiased (Ahmadian et al., arXiv:2402.14740). A group of
    equal rewards yields exact zeros.
    """

    name = "rloo"
    config_class = RlooAdvantageConfig

    def row(self, rewards_G: NDArray[np.float64]) -> NDArray[np.float64]:
        """Credit of one group, unit: reward."""
        count = len(rewards_G)
        if rewards_G.min() == rewards_G.max():
            return np.zeros(count)
        return (count * rewards_G - math.fsum(rewards_G)) / (count - 1)
