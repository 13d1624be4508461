"""Losses `grpo`, `gspo`, `cispo` and `reinforce`: what is made of the importance ratio."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from rlvr import NamedForm, PolicyGradientConfig
from rlvr_algos.config import CispoConfig, GrpoConfig, GspoConfig, ReinforceConfig
from rlvr_algos.losses.policy_gradient import PolicyGradientLoss
from rlvr_algos.tokens import PolicyTokens


class GrpoLoss(PolicyGradientLoss):
    """
    At each token -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), r its importance ratio.

    PPO's surrogate (arXiv:1707.06347) as GRPO uses it, arXiv:2402.03300, eq. 3; separate bounds
    from DAPO, arXiv:2503.14476. What it shares with the others: `PolicyGradientLoss`. See
    docs/algorithms/grpo.md.
    """

    name = "grpo"
    config_class: ClassVar[type[PolicyGradientConfig]] = GrpoConfig

    def form(self) -> NamedForm | None:
        """Tinker's `ppo`: the same surrogate."""
        return NamedForm(name="ppo", config=self._thresholds())

    def surrogate(
        self, tokens: PolicyTokens, log_ratio: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Adds `clip/low` and `clip/high`, shares of tokens whose gradient the clip stopped."""
        credit, (low, high) = tokens.advantages, self._thresholds().values()
        ratio = self.ratio(tokens, log_ratio)
        gain = torch.minimum(ratio * credit, ratio.clamp(low, high) * credit)
        return -gain, {
            "clip/low": tokens.weighted(((ratio < low) & (credit < 0)).to(ratio)),
            "clip/high": tokens.weighted(((ratio > high) & (credit > 0)).to(ratio)),
        }

    def ratio(self, tokens: PolicyTokens, log_ratio: Tensor) -> Tensor:
        """The ratio (N,) that is clipped."""
        return log_ratio.exp()

    def _thresholds(self) -> dict[str, float]:
        """The bounds of the ratio, lower and upper, as a service's settings."""
        config = self._config
        low, high = 1 - config.clip_low, 1 + config.clip_high
        return {"clip_low_threshold": low, "clip_high_threshold": high}


class GspoLoss(GrpoLoss):
    """
    At each token -min(s A, clip(s, 1 - clip_low, 1 + clip_high) A), s its sequence's ratio.

    s is the geometric mean of the token ratios of the sequence (arXiv:2507.18071, eq. 7), so its
    bounds are far narrower than a token's. In the form GSPO-token (eq. 14): a token's gradient is
    s times its own, which equals GSPO's where a sequence's tokens have one advantage and one
    weight, and stays right where they do not. A sequence is all tokens of the policy in a
    trajectory, its turns together. See docs/algorithms/gspo.md.
    """

    name = "gspo"
    config_class = GspoConfig

    def form(self) -> NamedForm:
        """Tinker's `gspo`, which is GSPO-token too; its mask says which tokens make the ratio."""
        masks = ("sequence_ratio_mask",)
        return NamedForm(name="gspo", config=self._thresholds(), masks=masks)

    def ratio(self, tokens: PolicyTokens, log_ratio: Tensor) -> Tensor:
        """Of the sequence: one value for all its tokens, the gradient each token's own."""
        lengths = tokens.per_datum(log_ratio.new_ones(len(log_ratio)))
        mean = (tokens.per_datum(log_ratio) / lengths).detach()  # (N,) nats, one a sequence
        return (mean + (log_ratio - log_ratio.detach())).exp()


class CispoLoss(GrpoLoss):
    """
    At each token -clip(r, 1 - clip_low, 1 + clip_high) A log pi_theta, the clipped r a constant.

    Where PPO's clip drops a token's gradient, this bounds its weight and keeps it (MiniMax-M1,
    arXiv:2506.13585). See docs/algorithms/cispo.md.
    """

    name = "cispo"
    config_class = CispoConfig

    def form(self) -> NamedForm:
        """Tinker's `cispo`."""
        return NamedForm(name="cispo", config=self._thresholds())

    def surrogate(
        self, tokens: PolicyTokens, log_ratio: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Adds `clip/low` and `clip/high`, shares of tokens whose weight was cut."""
        low, high = self._thresholds().values()
        ratio = log_ratio.detach().exp()
        return -ratio.clamp(low, high) * tokens.advantages * tokens.logprobs, {
            "clip/low": tokens.weighted((ratio < low).to(ratio)),
            "clip/high": tokens.weighted((ratio > high).to(ratio)),
        }


class ReinforceLoss(PolicyGradientLoss):
    """
    At each token -r A, r its importance ratio: on policy the gradient is -A grad log pi.

    What RLOO uses (arXiv:2402.14740): its authors find that a policy which starts from a
    pretrained model moves so little that clipping is not needed. See docs/algorithms/rloo.md.
    """

    name = "reinforce"
    config_class = ReinforceConfig

    def form(self) -> NamedForm:
        """Tinker's `importance_sampling`."""
        return NamedForm(name="importance_sampling")

    def surrogate(
        self, tokens: PolicyTokens, log_ratio: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The surrogate; no further metrics."""
        return -log_ratio.exp() * tokens.advantages, {}
