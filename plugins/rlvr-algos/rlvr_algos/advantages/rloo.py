"""Advantage `rloo`: credit relative to the mean of the *other* trajectories of the problem."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rlvr_algos.advantages.credit import Credit
from rlvr_algos.shaping.config import RlooAdvantageConfig


class RlooAdvantage(Credit):
    """
    Advantage of each trajectory: its reward minus the mean of its G - 1 companions (leave one out).

    `A_i = r_i - sum_{j != i} r_j / (G - 1) = G / (G - 1) * (r_i - mean(r))`: the baseline does not
    contain r_i, so the gradient is unbiased (Ahmadian et al., arXiv:2402.14740). A group of
    equal rewards yields exact zeros.
    """

    name = "rloo"
    config_class = RlooAdvantageConfig

    def raw(self, rewards_P_G: Sequence[Sequence[float]]) -> list[NDArray[np.float64]]:
        """Shape (P, G), unit: reward; a group looks at no other one."""
        return [np.array(_leave_one_out(rewards_G)) for rewards_G in rewards_P_G]


def _leave_one_out(rewards_G: Sequence[float]) -> list[float]:
    count = len(rewards_G)
    if min(rewards_G) == max(rewards_G):
        return [0.0] * count
    total = math.fsum(rewards_G)
    return [(count * reward - total) / (count - 1) for reward in rewards_G]
