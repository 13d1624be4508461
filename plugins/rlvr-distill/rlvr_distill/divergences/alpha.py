"""Amari's alpha divergence: from reverse KL (0) over Hellinger (1/2) to forward KL (1)."""

from __future__ import annotations

import torch
from attrs import frozen
from torch import Tensor

from rlvr_distill.divergences.pair import Pair

_LARGEST = 60.0
"""Nats at which a ratio to the power is cut, and passes no gradient: only beyond 0..1."""


@frozen(kw_only=True)
class Alpha:
    """
    (sum p^a q^(1-a) - 1) / (a (a - 1)); gradient (S q - r) / a, r = p^a q^(1-a), S = sum r.

    Within 1e-3 of 0 and 1, where this is 0 / 0, `catalogue` takes the KL that it tends to.
    """

    alpha: float = 0.5
    rows: int = 1
    support: int = 0
    floors_rest: bool = True

    def __call__(self, pair: Pair, pull: Tensor, out: Tensor) -> Tensor:
        """Values (n,)."""
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
