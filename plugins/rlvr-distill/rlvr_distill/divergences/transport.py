"""Wasserstein divergences: how far probability has to move between tokens.

The cost of moving between tokens i and j is `1 - cos(e_i, e_j)` by their embeddings, or 1: then
it is the total variation.

Shapes: n rows, S tokens with a bucket of their own, B buckets (S and perhaps the rest), V
vocabulary, C width.
"""

from __future__ import annotations

import torch
from attrs import frozen
from torch import Tensor
from torch.nn.functional import normalize

from rlvr_distill.divergences.pair import FLOOR, Kernel, Pair, inner


@frozen(kw_only=True)
class TotalVariation(Kernel):
    """1/2 sum |p - q|; gradient 1/2 q (sign(q - p) - sum q sign(q - p))."""

    floors_rest: bool = False

    def __call__(self, pair: Pair, pull: Tensor, out: Tensor) -> Tensor:
        pair.settled()
        gap = torch.sub(pair.q, pair.p, out=pair.spare)
        sign = torch.sign(gap, out=pair.log_p)
        value = gap.abs_().sum(dim=1) / 2
        mean = inner(pair.q, sign, pair.log_q)
        torch.mul(sign.sub_(mean).mul_(pair.q), pull / 2, out=out)
        return value


@frozen(kw_only=True, eq=False)
class Sinkhorn(Kernel):
    """
    Debiased entropic transport on a few tokens: OT(p, q) - OT(p, p) / 2 - OT(q, q) / 2.

    Computed in the log domain; the gradient is that of the potentials, not of the iterations
    (arXiv:1810.08278). Moving to or from the rest costs the row's mean cost.
    """

    embeddings: Tensor  # (V, C), detached
    support: int = 32
    blur: float = 0.1
    iterations: int = 50
    rows: int = 64
    floors_rest: bool = False

    def __call__(self, pair: Pair, pull: Tensor, out: Tensor) -> Tensor:
        pair.settled()
        if pair.ids is None:
            raise ValueError("transport needs a few tokens apart: see `Kernel.support`")
        is_there = torch.maximum(pair.log_p, pair.log_q)[:, : pair.ids.shape[1]] > FLOOR
        cost = self._cost(pair.ids, is_there, pair.p, pair.has_rest)
        apart_p, apart_q = self._potentials(cost, pair.log_p, pair.log_q)
        own_p = self._own(cost, pair.log_p)
        own_q = self._own(cost, pair.log_q)
        slope = apart_q - own_q
        value = (pair.p * (apart_p - own_p) + pair.q * slope).sum(1)
        mean = (pair.q * slope).sum(1, keepdim=True)
        torch.mul((slope - mean).mul_(pair.q), pull, out=out)
        return value

    def _cost(self, ids: Tensor, is_there: Tensor, like: Tensor, has_rest: bool) -> Tensor:
        """(n, B, B); the mean is over tokens that are there."""
        own = normalize(self.embeddings[ids].to(like), dim=-1)  # (n, S, C)
        among = (1 - own @ own.transpose(1, 2)).clamp_(min=0)
        size = among.shape[1]
        eye = torch.eye(size, dtype=torch.bool, device=among.device)
        among.masked_fill_(eye, 0.0)
        if not has_rest:
            return among
        cost = like.new_zeros(len(ids), size + 1, size + 1)
        cost[:, :-1, :-1] = among
        count = is_there.sum(dim=1)
        pairs = is_there[:, :, None] & is_there[:, None, :]
        mean = (among * pairs).sum(dim=(1, 2)).div_((count * (count - 1)).clamp(min=1))
        mean.clamp_(max=1)
        cost[:, -1, :-1] = cost[:, :-1, -1] = mean[:, None]
        return cost

    def _potentials(self, cost: Tensor, log_p: Tensor, log_q: Tensor) -> tuple[Tensor, Tensor]:
        of_p, of_q = torch.zeros_like(log_p), torch.zeros_like(log_q)
        for _ in range(self.iterations):
            of_p = self._soft_min(cost, log_q + of_q / self.blur)
            of_q = self._soft_min(cost, log_p + of_p / self.blur)
        return of_p, of_q

    def _own(self, cost: Tensor, log: Tensor) -> Tensor:
        """Of a distribution against itself; the mean of both, so that D(p, p) is 0 to the bit."""
        one, other = self._potentials(cost, log, log)
        return (one + other) / 2

    def _soft_min(self, cost: Tensor, log: Tensor) -> Tensor:
        """-blur * logsumexp_j(log_j - cost_ij / blur), (n, B); `cost` is symmetric."""
        return -self.blur * torch.logsumexp(log[:, None, :] - cost / self.blur, dim=2)


@frozen(kw_only=True, eq=False)
class Energy(Kernel):
    """
    1/2 |sum (p - q) e|^2 with unit embeddings e; gradient q (g - sum q g), g = -e . sum (p - q) e.

    Equals p'Cq - p'Cp / 2 - q'Cq / 2 on the whole vocabulary: a distance of mean embeddings only.
    The rest bucket has no direction.
    """

    embeddings: Tensor  # (V, C), detached
    norms: Tensor  # (V,), of the embeddings
    rows: int = 64
    support: int = 0
    floors_rest: bool = False

    @classmethod
    def of(cls, embeddings: Tensor) -> Energy:
        wide = torch.promote_types(embeddings.dtype, torch.float32)
        norms = torch.linalg.vector_norm(embeddings, dim=1, dtype=wide).clamp_(min=1e-12)
        return cls(embeddings=embeddings, norms=norms)

    def __call__(self, pair: Pair, pull: Tensor, out: Tensor) -> Tensor:
        pair.settled()
        gap = torch.sub(pair.p, pair.q, out=pair.spare)  # (n, B)
        if pair.ids is None:
            size = gap.shape[1]
            own, norms = self.embeddings[:size].to(gap.dtype), self.norms[:size].to(gap)
            move = gap.div_(norms) @ own  # (n, C)
            slope = torch.matmul(move, own.t(), out=gap).div_(norms).neg_()
        else:
            own = normalize(self.embeddings[pair.ids].to(gap), dim=-1)  # (n, S, C)
            tokens = gap[:, : own.shape[1]]
            move = (tokens[:, None] @ own)[:, 0]
            tokens.copy_(-(own @ move[:, :, None])[:, :, 0])
            if pair.has_rest:
                gap[:, -1] = 0.0
            slope = gap
        value = move.square().sum(1) / 2
        mean = inner(pair.q, slope, pair.log_q)
        torch.mul(slope.sub_(mean).mul_(pair.q), pull, out=out)
        return value
