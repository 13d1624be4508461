"""The divergences by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from rlvr_distill.config import DivergenceConfig
from rlvr_distill.divergences.kl import AdaptiveKl, FocalKl, ForwardKl, Jeffreys, ReverseKl
from rlvr_distill.divergences.mixtures import Alpha, Jsd, SkewKl, SkewReverseKl
from rlvr_distill.divergences.pair import Kernel
from rlvr_distill.divergences.transport import Energy, Sinkhorn, TotalVariation

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
    if options.loss != "wasserstein":
        return _PLAIN[options.loss](options)
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


def _jsd(options: DivergenceConfig) -> Kernel:
    beta = options.beta
    if beta in (0.0, 1.0):
        return ReverseKl() if beta else ForwardKl()
    scale = 1 / (beta * (1 - beta)) if options.normalize == "scaled" else 1.0
    return Jsd(beta=beta, scale=scale)


def _alpha(options: DivergenceConfig) -> Kernel:
    if abs(options.alpha - 1) < _EDGE:
        return ForwardKl()
    return ReverseKl() if abs(options.alpha) < _EDGE else Alpha(alpha=options.alpha)


_PLAIN: Mapping[str, Callable[[DivergenceConfig], Kernel]] = {
    "forward_kl": lambda _: ForwardKl(),
    "reverse_kl": lambda _: ReverseKl(),
    "jeffreys": lambda _: Jeffreys(),
    "jsd": _jsd,
    "skew_kl": lambda o: SkewKl(skew=o.skew) if o.skew > 0 else ForwardKl(),
    "skew_rkl": lambda o: SkewReverseKl(skew=o.skew) if o.skew > 0 else ReverseKl(),
    "alpha": _alpha,
    "akl": lambda o: AdaptiveKl(head_mass=o.head_mass),
    "focal": lambda o: FocalKl(gamma=o.gamma, on=o.focal_on),
    "tv": lambda _: TotalVariation(),
}
