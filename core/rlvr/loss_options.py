"""Options that policy-gradient losses share, whichever plugin offers the loss."""

from __future__ import annotations

from attrs import frozen
from attrs.validators import ge, gt

from rlvr.config.fields import option

__all__ = ["CORRECTIONS", "PolicyGradientConfig"]

CORRECTIONS = ("none", "tis-token", "tis-sequence", "mis-token", "mis-sequence")


@frozen(kw_only=True, slots=False)  # `opd` has these beside those of distillation
class PolicyGradientConfig:
    """Options that every policy-gradient loss has under its own namespace."""

    kl_coef: float = option(
        0.0, "Weight of the KL to the reference; 0: no reference is needed", validator=ge(0)
    )
    kl_estimator: str = option(
        "k3", "Estimate of the KL, see docs/algorithms/grpo.md", choices=("k1", "k2", "k3")
    )
    kl_bias_correction: bool = option(
        False, "Multiply the KL by the importance ratio (TRL: use_bias_correction_kl)"
    )
    kl_target: float = option(
        0.0,
        "Target of the KL, which adapts kl_coef; 0: kl_coef stays",
        unit="nats",
        validator=ge(0),
    )
    kl_horizon: float = option(
        10.0, "Steps in which kl_coef adapts to the KL; more: slower", unit="steps", validator=gt(1)
    )
    entropy_coef: float = option(0.0, "Weight of the entropy bonus; 0: none", validator=ge(0))
    correction: str = option(
        "none",
        "Correct for a sampler that is not the trainer: none, tis-*, mis-* (token or sequence)",
        choices=CORRECTIONS,
    )
    correction_cap: float = option(
        2.0, "Largest trainer/sampler ratio; mis: the least is 1 / this", validator=gt(1)
    )
    mismatch_warn: float = option(
        0.01, "Warn at a sampler-trainer KL above this; 0: never", unit="nats", validator=ge(0)
    )
