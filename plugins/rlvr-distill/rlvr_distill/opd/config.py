"""The options of the loss `opd`: those of a policy gradient, and those of distillation."""

from __future__ import annotations

from attrs import frozen
from attrs.validators import gt

from rlvr import PolicyGradientConfig, option
from rlvr_distill.config import TokenDistillConfig

MODES = ("pg", "supervised", "both")


@frozen(kw_only=True)
class OpdLossConfig(PolicyGradientConfig, TokenDistillConfig):
    """Namespace `opd`: use of the teacher; the rest are `reinforce`'s and `distill`'s."""

    mode: str = option(
        "pg",
        "pg: the sampled token's log-ratio as advantage; supervised: a divergence; both",
        choices=MODES,
    )
    coef: float = option(
        1.0, "Weight of the divergence (supervised, both), beside the reward", validator=gt(0)
    )
