"""Advantage `gae`: credit relative to what a critic expected, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlvr import BuildContext, Datum, Needs
from rlvr_algos.advantages.global_batch import GlobalAdvantage, token_rewards
from rlvr_algos.shaping.config import GaeConfig
from rlvr_algos.shaping.reward_kl import annotated, to_go, with_advantages, with_annotation


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
