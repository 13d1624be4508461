"""The options of the advantages and losses, one record a namespace.

Field defaults are the published formulas; what an algorithm vets instead stands in `plugin.py`.
"""

from __future__ import annotations

from attrs import frozen
from attrs.validators import and_, ge, gt, lt

from rlvr import option


@frozen(kw_only=True)
class GroupAdvantageConfig:
    """Namespace `advantage`: how a group's rewards become credit."""

    normalise_std: bool = option(True, "Divide by the group's standard deviation (false: Dr. GRPO)")
    epsilon: float = option(1e-6, "Added to the standard deviation", unit="reward", validator=gt(0))


@frozen(kw_only=True)
class GrpoConfig:
    """Namespace `grpo`: the clipped ratio and the pull to the reference."""

    clip_low: float = option(
        0.2, "The ratio is clipped below at 1 - clip_low", validator=and_(ge(0), lt(1))
    )
    clip_high: float = option(0.2, "The ratio is clipped above at 1 + clip_high", validator=ge(0))
    kl_coef: float = option(
        0.0, "Weight of the KL to the reference; 0: no reference is needed", validator=ge(0)
    )
    kl_estimator: str = option(
        "k3", "Estimate of the KL, see docs/algorithms/grpo.md", choices=("k1", "k2", "k3")
    )
