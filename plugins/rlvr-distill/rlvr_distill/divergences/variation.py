"""Total variation: half the probability that the two distributions do not share."""

from __future__ import annotations

import torch
from attrs import frozen
from torch import Tensor

from rlvr_distill.divergences.pair import Pair, inner


@frozen(kw_only=True)
class TotalVariation:
    """1/2 sum |p - q|; gradient 1/2 q (sign(q - p) - sum q sign(q - p))."""

    rows: int = 1
    support: int = 0
    floors_rest: bool = False

    def __call__(self, pair: Pair, pull: Tensor, out: Tensor) -> Tensor:
        """Values (n,)."""
        pair.settled()
        gap = torch.sub(pair.q, pair.p, out=pair.spare)
        sign = torch.sign(gap, out=pair.log_p)
        value = gap.abs_().sum(dim=1) / 2
        mean = inner(pair.q, sign, pair.log_q)
        torch.mul(sign.sub_(mean).mul_(pair.q), pull / 2, out=out)
        return value
