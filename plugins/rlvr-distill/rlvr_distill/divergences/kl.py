"""Kullback-Leibler divergences in both directions, and losses that weigh the two by row.

Each gives values (n,) and gradients by the student's logits (n, B); see docs/algorithms/distill.
"""

from __future__ import annotations

import torch
from attrs import frozen
from torch import Tensor

from rlvr_distill.divergences.pair import Kernel, Pair, inner

_FEW = 256
"""Likeliest tokens that hold a teacher's head nearly always: no need to sort all."""


@frozen(kw_only=True)
class ForwardKl(Kernel):
    """KL(p || q) = sum p (log p - log q); gradient q - p."""

    floors_rest: bool = False

    def __call__(self, pair: Pair, pull: Tensor, out: Tensor) -> Tensor:
        value = _forward(pair)
        torch.mul(pair.q, pull / pair.mass_q, out=out)
        out.addcmul_(pair.p, pull / -pair.mass_p)
        return value[:, 0]


@frozen(kw_only=True)
class ReverseKl(Kernel):
    """KL(q || p) = sum q (log q - log p); gradient q (log q - log p - KL(q || p))."""

    def __call__(self, pair: Pair, pull: Tensor, out: Tensor) -> Tensor:
        gap = pair.settled().log_q.sub_(pair.log_p)
        value = inner(pair.q, gap, pair.spare)
        torch.mul(gap.sub_(value), pair.q.mul_(pull), out=out)
        return value[:, 0]


@frozen(kw_only=True)
class Jeffreys(Kernel):
    """KL(p || q) + KL(q || p) = sum (p - q)(log p - log q); the gradient is the sum of both."""

    def __call__(self, pair: Pair, pull: Tensor, out: Tensor) -> Tensor:
        gap = pair.settled().log_q.sub_(pair.log_p)
        forward, backward = _both(pair, gap)
        torch.mul(gap.add_(1 - backward).mul_(pair.q).sub_(pair.p), pull, out=out)
        return (forward + backward)[:, 0]


@frozen(kw_only=True)
class AdaptiveKl(Kernel):
    """
    a KL(p || q) + (1 - a) KL(q || p), a the share of the teacher's head in sum |p - q|, detached.

    The head are the teacher's likeliest tokens while their probabilities sum to at most
    `head_mass`, and always the first (arXiv:2404.02657). The rest bucket is never in it.
    """

    head_mass: float = 0.5

    def __call__(self, pair: Pair, pull: Tensor, out: Tensor) -> Tensor:
        share = self._share(pair.settled())
        gap = pair.log_q.sub_(pair.log_p)
        forward, backward = _both(pair, gap)
        value = share * forward + (1 - share) * backward
        # a (q - p) + (1 - a) q (gap - backward)
        own = gap.sub_(backward).mul_(1 - share).add_(share).mul_(pair.q)
        torch.mul(own.sub_(pair.p.mul_(share)), pull, out=out)
        return value[:, 0]

    def _share(self, pair: Pair) -> Tensor:
        gap = torch.sub(pair.p, pair.q, out=pair.spare).abs_()
        tokens = pair.p[:, :-1] if pair.has_rest else pair.p
        by_size, order = tokens.topk(min(_FEW, tokens.shape[1]), dim=1)
        if not bool((by_size.sum(dim=1) > self.head_mass).all()):
            by_size, order = tokens.sort(dim=1, descending=True)
        is_head = by_size.cumsum(dim=1) <= self.head_mass
        is_head[:, 0] = True
        total = gap.sum(dim=1, keepdim=True)
        of_head = (gap.gather(1, order) * is_head).sum(dim=1, keepdim=True)
        return torch.where(total > 0, of_head / total.clamp(min=1e-30), 0.5)


@frozen(kw_only=True)
class FocalKl(Kernel):
    """
    (1 - s)^gamma KL(p || q): less of it where the two agree already; s is detached.

    s is their overlap, sum min(p, q), or with `on="top"` the student's probability of the teacher's
    likeliest token.
    """

    gamma: float = 2.0
    on: str = "overlap"
    floors_rest: bool = False

    def __call__(self, pair: Pair, pull: Tensor, out: Tensor) -> Tensor:
        pair.settled()
        if self.on == "top":
            tokens = pair.p[:, :-1] if pair.has_rest else pair.p
            agreed = pair.q.gather(1, tokens.argmax(dim=1, keepdim=True))
        else:
            agreed = torch.minimum(pair.p, pair.q, out=pair.spare).sum(dim=1, keepdim=True)
        factor = (1 - agreed).clamp_(0, 1).pow_(self.gamma)
        value = _forward(pair)
        torch.mul(pair.q.sub_(pair.p), factor * pull, out=out)
        return (factor * value)[:, 0]


def _forward(pair: Pair) -> Tensor:
    """KL(p || q), (n, 1); `log_p` is overwritten."""
    gap = inner(pair.p, pair.log_p.sub_(pair.log_q), pair.spare)
    return gap.div_(pair.mass_p).add_((pair.mass_q / pair.mass_p).log_())


def _both(pair: Pair, gap: Tensor) -> tuple[Tensor, Tensor]:
    """KL(p || q) and KL(q || p), each (n, 1), of log q - log p."""
    forward = inner(pair.p, gap, pair.spare).neg()
    return forward, inner(pair.q, gap, pair.spare)
