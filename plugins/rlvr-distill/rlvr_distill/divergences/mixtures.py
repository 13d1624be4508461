"""Divergences that mix both distributions: bounded where plain KL is not (alpha: within 0..1).

Each gives values (n,) and gradients by the student's logits (n, B); see docs/algorithms/distill.
"""

from __future__ import annotations

import torch
from attrs import frozen
from torch import Tensor

from rlvr_distill.divergences.pair import TINY, Kernel, Pair, centred, inner

_LARGEST = 60.0
"""Nats at which a ratio to the power is cut, and passes no gradient: only beyond 0..1."""


@frozen(kw_only=True)
class Jsd(Kernel):
    """
    beta KL(p || m) + (1 - beta) KL(q || m), with m = beta p + (1 - beta) q, times `scale`.

    Gradient (1 - beta) q (log q - log m - KL(q || m)).
    """

    beta: float = 0.5
    scale: float = 1.0

    def __call__(self, pair: Pair, pull: Tensor, out: Tensor) -> Tensor:
        log_m = _mixture(pair, self.beta).log_()
        of_p = inner(pair.p, pair.log_p.sub_(log_m), pair.p)
        of_q = inner(pair.q, pair.log_q.sub_(log_m), pair.log_q)
        value = self.scale * (self.beta * of_p + (1 - self.beta) * of_q)
        own = pair.log_q.sub_(pair.q.mul_(of_q))
        torch.mul(own, pull * (self.scale * (1 - self.beta)), out=out)
        return value[:, 0]


@frozen(kw_only=True)
class SkewKl(Kernel):
    """
    KL(p || m) with m = skew p + (1 - skew) q (DistiLLM, arXiv:2402.03898); at most log(1 / skew).

    Gradient -(1 - skew) q (p / m - sum p q / m).
    """

    skew: float = 0.1
    floors_rest: bool = False

    def __call__(self, pair: Pair, pull: Tensor, out: Tensor) -> Tensor:
        mixture = _mixture(pair, self.skew)
        ratio = torch.div(pair.q, mixture, out=pair.log_q)
        value = inner(pair.p, pair.log_p.sub_(mixture.log_()), pair.log_p)
        own = centred(ratio.mul_(pair.p), pair.q)
        torch.mul(own, pull * (self.skew - 1), out=out)
        return value[:, 0]


@frozen(kw_only=True)
class SkewReverseKl(Kernel):
    """
    KL(q || m) with m = skew q + (1 - skew) p (DistiLLM, arXiv:2402.03898); at most log(1 / skew).

    Gradient q (h - sum q h), h = log q - log m - skew q / m.
    """

    skew: float = 0.1

    def __call__(self, pair: Pair, pull: Tensor, out: Tensor) -> Tensor:
        mixture = _mixture(pair, 1 - self.skew)
        ratio = torch.div(pair.q, mixture, out=pair.p)
        gap = pair.log_q.sub_(mixture.log_())
        value = inner(pair.q, gap, pair.log_p)
        own = centred(gap.sub_(ratio.mul_(self.skew)).mul_(pair.q), pair.q)
        torch.mul(own, pull, out=out)
        return value[:, 0]


@frozen(kw_only=True)
class Alpha(Kernel):
    """
    (sum p^a q^(1-a) - 1) / (a (a - 1)); gradient (S q - r) / a, r = p^a q^(1-a), S = sum r.

    Within 1e-3 of 0 and 1, where this is 0 / 0, `catalogue` takes the KL that it tends to.
    """

    alpha: float = 0.5

    def __call__(self, pair: Pair, pull: Tensor, out: Tensor) -> Tensor:
        pair.settled()
        alpha = self.alpha
        powers = torch.lerp(pair.log_q, pair.log_p, alpha, out=pair.spare)
        log_sum = torch.logsumexp(powers.clamp_(max=_LARGEST), dim=1, keepdim=True)
        value = torch.expm1(log_sum) / (alpha * (alpha - 1))
        ratio = torch.exp(powers, out=pair.log_p)
        if not 0 <= alpha <= 1:
            ratio.masked_fill_(powers >= _LARGEST, 0.0)
        total = ratio.sum(dim=1, keepdim=True)
        torch.mul(pair.q.mul_(total).sub_(ratio), pull / alpha, out=out)
        return value[:, 0]


def _mixture(pair: Pair, share: float) -> Tensor:
    """Settle the pair; `share p + (1 - share) q` in the spare buffer."""
    pair.settled()
    mixture = torch.lerp(pair.q, pair.p, share, out=pair.spare)
    return mixture.clamp_(min=TINY) if pair.is_safe else mixture
