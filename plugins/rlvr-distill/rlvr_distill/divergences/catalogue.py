"""The divergences by name."""

from __future__ import annotations

from torch import Tensor

from rlvr_distill.config import DivergenceConfig
from rlvr_distill.divergences.alpha import Alpha
from rlvr_distill.divergences.kl import AdaptiveKl, FocalKl, ForwardKl, Jeffreys, ReverseKl
from rlvr_distill.divergences.mixtures import Jsd, SkewKl, SkewReverseKl
from rlvr_distill.divergences.pair import Kernel
from rlvr_distill.divergences.transport import Energy, Sinkhorn
from rlvr_distill.divergences.variation import TotalVariation

_EDGE = 1e-3
"""So near to 0 and 1 the alpha divergence is taken for the KL that it tends to: else 0 / 0."""


def kernel(config: DivergenceConfig | str, embeddings: Tensor | None = None) -> Kernel:
    """
    The divergence that the options, or a name alone, say.

    Args:
        config: `DivergenceConfig(loss="jsd", beta=0.1)`, or the loss's name.
        embeddings: (V, C) of the student's tokens, for `wasserstein` by embedding or energy.

    Raises:
        ValueError: A Wasserstein divergence without embeddings.
    """
    options = DivergenceConfig(loss=config) if isinstance(config, str) else config
    match options.loss:
        case "forward_kl":
            return ForwardKl()
        case "reverse_kl":
            return ReverseKl()
        case "jeffreys":
            return Jeffreys()
        case "jsd":
            return _jsd(options.beta, options.normalize == "scaled")
        case "skew_kl":
            return SkewKl(skew=options.skew) if options.skew > 0 else ForwardKl()
        case "skew_rkl":
            return SkewReverseKl(skew=options.skew) if options.skew > 0 else ReverseKl()
        case "alpha":
            return _alpha(options.alpha)
        case "akl":
            return AdaptiveKl(head_mass=options.head_mass)
        case "focal":
            return FocalKl(gamma=options.gamma, on=options.focal_on)
        case "tv":
            return TotalVariation()
    if options.cost == "discrete":
        return TotalVariation()
    if embeddings is None:
        raise ValueError(f"wasserstein with cost={options.cost} needs the embeddings of the tokens")
    embeddings = embeddings.detach()
    if options.cost == "energy":
        return Energy.of(embeddings)
    return Sinkhorn(
        embeddings=embeddings,
        support=options.support,
        blur=options.blur,
        iterations=options.iterations,
    )


def _jsd(beta: float, is_scaled: bool) -> Kernel:
    if beta == 0.0:
        return ForwardKl()
    if beta == 1.0:
        return ReverseKl()
    return Jsd(beta=beta, scale=1 / (beta * (1 - beta)) if is_scaled else 1.0)


def _alpha(alpha: float) -> Kernel:
    if abs(alpha - 1) < _EDGE:
        return ForwardKl()
    if abs(alpha) < _EDGE:
        return ReverseKl()
    return Alpha(alpha=alpha)
