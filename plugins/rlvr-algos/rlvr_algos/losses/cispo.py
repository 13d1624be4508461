"""Loss `cispo`: REINFORCE with a clipped importance weight that no token escapes."""

from __future__ import annotations

from torch import Tensor

from rlvr import NamedForm
from rlvr_algos.config import CispoConfig
from rlvr_algos.losses.policy_gradient import PolicyGradientLoss, thresholds
from rlvr_algos.tokens import PolicyTokens


class CispoLoss(PolicyGradientLoss):
    """
    At each token -clip(r, 1 - clip_low, 1 + clip_high) A log pi_theta, the clipped r a constant.

    Where PPO's clip drops a token's gradient, this bounds its weight and keeps it (MiniMax-M1,
    arXiv:2506.13585). See docs/algorithms/cispo.md.
    """

    name = "cispo"
    config_class = CispoConfig

    def form(self) -> NamedForm:
        """Tinker's `cispo`."""
        return NamedForm(name="cispo", config=thresholds(self._config))

    def surrogate(
        self, tokens: PolicyTokens, log_ratio: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Adds `clip/low` and `clip/high`, shares of tokens whose weight was cut."""
        low, high = 1 - self._config.clip_low, 1 + self._config.clip_high
        ratio = log_ratio.detach().exp()
        return -ratio.clamp(low, high) * tokens.advantages * tokens.logprobs, {
            "clip/low": tokens.weighted((ratio < low).to(ratio)),
            "clip/high": tokens.weighted((ratio > high).to(ratio)),
        }
