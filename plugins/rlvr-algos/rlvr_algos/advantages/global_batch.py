"""Advantage `global`: credit relative to the whole batch of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rlvr import Datum
from rlvr_algos.advantages.credit import Credit
from rlvr_algos.shaping.config import GlobalAdvantageConfig
from rlvr_algos.shaping.reward_kl import to_go, token_kl, with_advantages


class GlobalAdvantage(Credit):
    """
    Advantage of each token: its return, normalised over all of the policy's tokens of the step.

    A token's reward is `-kl_coef * k1`, the last one's has the answer's reward on top; a return
    is the discounted sum of a token's and all later rewards. Then, over the whole step,
    `A = (return - mean) / (std + epsilon)` (REINFORCE++, arXiv:2501.03262; k1 as in
    `reward_kl`). No group is needed, so a group size of one is as good as any.

    `__call__` gives the shaped rewards themselves; `per_token` makes and normalises the returns.
    """

    name = "global"
    config_class: ClassVar[type[GlobalAdvantageConfig]] = GlobalAdvantageConfig
    smallest_group: int = 1
    is_bounded_by_token = True

    def raw(self, rewards_P_G: Sequence[Sequence[float]]) -> list[NDArray[np.float64]]:
        """The rewards, unchanged."""
        return [np.array(rewards_G) for rewards_G in rewards_P_G]

    def per_token(self, data: Sequence[Datum]) -> list[Datum]:
        """The data with returns in place of rewards, whitened and clipped as the options say."""
        labels = [datum.labels for datum in data]
        returns = self.bounded([self._returns(datum) for datum in data], labels)
        return [with_advantages(d, row) for d, row in zip(data, returns, strict=True)]

    def _returns(self, datum: Datum) -> NDArray[np.float64]:
        return to_go(token_rewards(datum, self._config.kl_coef), self._config.discount)


def token_rewards(datum: Datum, kl_coef: float) -> NDArray[np.float64]:
    """
    Reward of each of the policy's n tokens, shape (n,): minus its KL, the answer's on the last.

    The answer's reward stands in the advantages that `Credit.__call__` gave.
    """
    rewards = -kl_coef * token_kl(datum) if kl_coef else np.zeros(int(datum.mask.sum()))
    if len(rewards):
        rewards[-1] += float(datum.advantages[datum.mask][-1])
    return rewards
