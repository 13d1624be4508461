"""Loss `ppo`: the clipped ratio of each token, and the critic's clipped squared error."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlvr import BuildContext, NamedForm, Needs
from rlvr_algos.config import PpoConfig
from rlvr_algos.losses.grpo import GrpoLoss
from rlvr_algos.tokens import PolicyTokens


class PpoLoss(GrpoLoss):
    """
    GRPO's surrogate, plus at each token value_coef / 2 * max((V - R)^2, (V_clipped - R)^2).

    V is the critic's estimate now, R the annotated "return", and V_clipped is V held within
    `value_clip` of the annotated "value", the estimate before the step (arXiv:1707.06347; the
    clipped critic as in its authors' code). See docs/algorithms/ppo.md.

    Attributes:
        needs: Besides the base's, the annotations "value" and "return" (the advantage `gae` makes
            it) and the output "value".
    """

    name = "ppo"
    config_class = PpoConfig

    def __init__(self, config: Any, context: BuildContext) -> None:
        super().__init__(config, context)
        self.needs |= Needs(annotations={"value", "return"}, outputs={"value"})

    def form(self) -> NamedForm | None:
        """None: no service's built-in loss has a critic."""
        return None

    def further(self, tokens: PolicyTokens) -> tuple[Tensor, dict[str, Tensor]]:
        """Adds `loss/value` (before `value_coef`), `value/mean`, `return/mean`, `value/clipped`."""
        now, before = tokens.outputs["value"], tokens.annotations["value"]
        wanted = tokens.annotations["return"]
        error = (now - wanted).square()
        is_clipped = torch.zeros_like(now)
        if bound := self._config.value_clip:
            held = before + (now - before).clamp(-bound, bound)
            is_clipped = ((held - wanted).square() > error).to(now)
            error = torch.maximum(error, (held - wanted).square())
        loss = tokens.weighted(error / 2)
        return self._config.value_coef * loss, {
            "loss/value": loss,
            "value/mean": tokens.weighted(now),
            "return/mean": tokens.weighted(wanted),
            "value/clipped": tokens.weighted(is_clipped),
        }
