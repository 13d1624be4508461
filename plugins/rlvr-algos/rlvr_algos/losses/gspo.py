"""Loss `gspo`: the clipped importance ratio of a whole sequence."""

from __future__ import annotations

from torch import Tensor

from rlvr import NamedForm
from rlvr_algos.config import GspoConfig
from rlvr_algos.losses.policy_gradient import PolicyGradientLoss, clipped_gain, thresholds
from rlvr_algos.tokens import PolicyTokens


class GspoLoss(PolicyGradientLoss):
    """
    At each token -min(s A, clip(s, 1 - clip_low, 1 + clip_high) A), s its sequence's ratio.

    s is the geometric mean of the token ratios of the sequence (arXiv:2507.18071, eq. 7), so its
    bounds are far narrower than a token's. In the form GSPO-token (eq. 14): a token's gradient is
    s times its own, which equals GSPO's where a sequence's tokens have one advantage and one
    weight, and stays right where they do not. A sequence are all tokens of the policy in a
    trajectory, its turns together. See docs/algorithms/gspo.md.
    """

    name = "gspo"
    config_class = GspoConfig

    def form(self) -> NamedForm:
        """Tinker's `gspo`, which is GSPO-token too; its mask says which tokens make the ratio."""
        return NamedForm(
            name="gspo", config=thresholds(self._config), masks=("sequence_ratio_mask",)
        )

    def surrogate(
        self, tokens: PolicyTokens, log_ratio: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Adds `clip/low` and `clip/high`, shares of tokens whose gradient the clip stopped."""
        config = self._config
        lengths = tokens.per_datum(log_ratio.new_ones(len(log_ratio)))
        mean = (tokens.per_datum(log_ratio) / lengths).detach()  # (N,) nats, one a sequence
        ratio = (mean + (log_ratio - log_ratio.detach())).exp()  # value s, gradient the token's
        return clipped_gain(tokens, ratio, 1 - config.clip_low, 1 + config.clip_high)
