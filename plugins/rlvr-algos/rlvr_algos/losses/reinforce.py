"""Loss `reinforce`: the importance-weighted policy gradient, nothing clipped."""

from __future__ import annotations

from torch import Tensor

from rlvr import NamedForm
from rlvr_algos.config import ReinforceConfig
from rlvr_algos.losses.policy_gradient import PolicyGradientLoss
from rlvr_algos.tokens import PolicyTokens


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
        """No further metrics."""
        return -log_ratio.exp() * tokens.advantages, {}
