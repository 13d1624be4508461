"""Advantages `global` and `gae`: credit relative to the whole batch, or to a critic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rlvr import BuildContext, Datum, Needs
from rlvr_algos.advantages.credit import Credit
from rlvr_algos.shaping.config import GaeConfig, GlobalAdvantageConfig
from rlvr_algos.shaping.reward_kl import (
    annotated,
    to_go,
    token_kl,
    with_advantages,
    with_annotation,
)


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
    is_group_relative = False

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


class GaeAdvantage(GlobalAdvantage):
    """
    Generalised advantage estimates over the policy's tokens (arXiv:1506.02438).

    With the token rewards of `global` and the critic's estimates V before each token:
    `delta_t = r_t + discount * V_{t+1} - V_t` (V past the last token is 0, also where the answer
    was cut at its limit), `A_t = sum_l (discount * gae_lambda)^l delta_{t+l}`. Tokens of the
    prompt and of the environment are skipped: the next token is the policy's next one. The critic
    is to learn `return_t = A_t + V_t`, which is annotated; the advantages are whitened after that.

    Attributes:
        needs: The annotation "value", and "reference" with a KL in the reward; gives "return".
    """

    name = "gae"
    config_class = GaeConfig

    def __init__(self, config: Any, context: BuildContext) -> None:
        super().__init__(config, context)
        self.needs |= Needs(annotations={"value"}, provides={"return"})

    def per_token(self, data: Sequence[Datum]) -> list[Datum]:
        """
        The data with their advantages (T,), and the annotation "return" (T,) for the critic.

        Raises:
            BackendError: A datum has no annotation "value".
        """
        estimates = [self._estimates(datum) for datum in data]
        returns = [
            row + annotated(datum, "value") for datum, row in zip(data, estimates, strict=True)
        ]
        bounded = self.bounded(estimates, [datum.labels for datum in data])
        return [
            with_annotation(with_advantages(datum, row), "return", target)
            for datum, row, target in zip(data, bounded, returns, strict=True)
        ]

    def _estimates(self, datum: Datum) -> NDArray[np.float64]:
        config = self._config
        values = annotated(datum, "value")  # (n,)
        after = np.append(values[1:], [0.0] * bool(len(values)))
        deltas = token_rewards(datum, config.kl_coef) + config.discount * after - values
        return to_go(deltas, config.discount * config.gae_lambda)
