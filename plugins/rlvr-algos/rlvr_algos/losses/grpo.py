"""Loss `grpo`: the clipped importance ratio of each token."""

from __future__ import annotations

from torch import Tensor

from rlvr import NamedForm
from rlvr_algos.config import GrpoConfig
from rlvr_algos.losses.policy_gradient import PolicyGradientLoss, clipped_gain, thresholds
from rlvr_algos.tokens import PolicyTokens


class GrpoLoss(PolicyGradientLoss):
    """
    At each token -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), r its importance ratio.

    PPO's surrogate (arXiv:1707.06347) as GRPO uses it, arXiv:2402.03300, eq. 3; separate bounds
    from DAPO, arXiv:2503.14476. What it shares with the others: `PolicyGradientLoss`. See
    docs/algorithms/grpo.md.
    """

    name = "grpo"
    config_class = GrpoConfig

    def form(self) -> NamedForm:
        """Tinker's `ppo`: the same surrogate."""
        return NamedForm(name="ppo", config=thresholds(self._config))

    def surrogate(
        self, tokens: PolicyTokens, log_ratio: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Adds `clip/low` and `clip/high`, shares of tokens whose gradient the clip stopped."""
        config = self._config
        return clipped_gain(tokens, log_ratio.exp(), 1 - config.clip_low, 1 + config.clip_high)
