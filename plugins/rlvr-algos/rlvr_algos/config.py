"""The options of the losses, one record a namespace; all share `PolicyGradientConfig`.

Field defaults are the published formulas; what an algorithm vets instead stands in `plugin.py`.
"""

from __future__ import annotations

from attrs import frozen
from attrs.validators import and_, ge, gt, le, lt

from rlvr import PolicyGradientConfig, option


@frozen(kw_only=True)
class ClipConfig(PolicyGradientConfig):
    """Bounds of an importance ratio."""

    clip_low: float = option(
        0.2, "The ratio is clipped below at 1 - clip_low", validator=and_(ge(0), lt(1))
    )
    clip_high: float = option(0.2, "The ratio is clipped above at 1 + clip_high", validator=ge(0))


@frozen(kw_only=True)
class GrpoConfig(ClipConfig):
    """Namespace `grpo`: the clipped token ratio."""


@frozen(kw_only=True)
class GspoConfig(ClipConfig):
    """Namespace `gspo`: the clipped sequence ratio."""

    clip_low: float = option(
        3e-4, "The sequence ratio is clipped below at 1 - clip_low", validator=and_(ge(0), lt(1))
    )
    clip_high: float = option(
        4e-4, "The sequence ratio is clipped above at 1 + clip_high", validator=ge(0)
    )


@frozen(kw_only=True)
class CispoConfig(PolicyGradientConfig):
    """Namespace `cispo`: the clipped weight."""

    clip_low: float = option(
        1.0, "The weight is at least 1 - clip_low; 1: no bound", validator=and_(ge(0), le(1))
    )
    clip_high: float = option(4.0, "The weight is at most 1 + clip_high", validator=ge(0))


@frozen(kw_only=True)
class ReinforceConfig(PolicyGradientConfig):
    """Namespace `reinforce`: nothing is clipped."""


@frozen(kw_only=True)
class PpoConfig(ClipConfig):
    """Namespace `ppo`: the clipped token ratio, and the critic's loss."""

    value_coef: float = option(0.5, "Weight of the critic's loss", validator=gt(0))
    value_clip: float = option(
        0.2, "The critic moves at most so far from its old estimate; 0: freely", validator=ge(0)
    )
