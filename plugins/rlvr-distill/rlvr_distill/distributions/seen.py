"""Metrics of two distributions by row, computed while both are in memory.

Shapes: n rows, V vocabulary, S tokens that a teacher told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlvr_distill.distributions.sides import Sparse
from rlvr_distill.divergences.pair import FLOOR, Pair

NAMES = ("kl", "accuracy", "entropy", "teacher_entropy", "overlap", "agreement")
"""
Forward KL, nats; whether the student's likeliest token stands there; entropies, nats; share of the
teacher's `TOP` likeliest tokens that are among the student's; whether the likeliest is the same.
"""

TOP = 8


class Seen:
    """Numbers (N,) by name, filled row by row; all zeros where `names` does not ask for them."""

    def __init__(self, count: int, like: Tensor, names: tuple[str, ...]) -> None:
        self.names = frozenset(names)
        self.values: Mapping[str, Tensor] = {
            name: torch.zeros(count, dtype=like.dtype, device=like.device) for name in names
        }

    def look(self, pair: Pair, targets: Tensor | None, rows: Any) -> None:
        """At whole distributions, before a kernel overwrites them; `spare` is used."""
        if not self.names:
            return
        best = pair.log_q.amax(dim=1)
        self._put(
            "kl", rows, lambda: _dot(pair.p, pair.log_p, pair) - _dot(pair.p, pair.log_q, pair)
        )
        self._put("entropy", rows, lambda: -_dot(pair.q, pair.log_q, pair))
        self._put("teacher_entropy", rows, lambda: -_dot(pair.p, pair.log_p, pair))
        if targets is not None:
            own = pair.log_q.gather(1, targets[:, None])[:, 0]
            self._put("accuracy", rows, lambda: own == best)
        if self.names & {"overlap", "agreement"}:
            top = min(TOP, pair.p.shape[1])
            theirs, own_top = pair.p.topk(top, dim=1).indices, pair.q.topk(top, dim=1).indices
            self._put("overlap", rows, lambda: _shared(theirs, own_top))
            self._put("agreement", rows, lambda: pair.log_q.gather(1, theirs[:, :1])[:, 0] == best)

    def look_at_few(
        self, told: Sparse, logits: Tensor, heat: Any, targets: Tensor | None, rows: Any
    ) -> None:
        """At what a teacher told of a few tokens, beside all logits of the student."""
        if not self.names:
            return
        is_there = told.ids >= 0
        best = logits.amax(dim=1)
        order = told.logprobs.masked_fill(~is_there, -torch.inf)
        log_p = order if told.has_rest else torch.log_softmax(order, dim=1)
        log_p = log_p.masked_fill(~is_there, 0.0).clamp(min=FLOOR)
        p = log_p.exp() * is_there
        left = (1 - p.sum(dim=1)).clamp(min=0)
        entropy = -(p * log_p).sum(dim=1) - torch.special.xlogy(left, left)
        self._put("teacher_entropy", rows, lambda: entropy)
        if self.names & {"entropy", "kl"}:
            log_q = torch.log_softmax(logits.to(p) / heat, dim=1).clamp_(min=FLOOR)
            self._put("entropy", rows, lambda: -(log_q.exp() * log_q).sum(dim=1))
            own = log_q.gather(1, told.ids.clamp(min=0)).masked_fill(~is_there, -torch.inf)
            if not told.has_rest:
                own = torch.log_softmax(own, dim=1)
            own = own.masked_fill(~is_there, 0.0)
            rest = (1 - (own.exp() * is_there).sum(dim=1)).clamp(min=1e-6)
            tail = torch.special.xlogy(left, left) - left * rest.log()
            cross = (p * (log_p - own)).sum(dim=1)
            self._put("kl", rows, lambda: cross + (tail if told.has_rest else 0.0))
        if targets is not None:
            at = logits.gather(1, targets[:, None])[:, 0]
            self._put("accuracy", rows, lambda: at == best)
        if self.names & {"overlap", "agreement"}:
            top = min(TOP, told.ids.shape[1])
            picked = order.topk(top, dim=1).indices
            theirs = told.ids.gather(1, picked)
            self._put("overlap", rows, lambda: _shared(theirs, logits.topk(top, dim=1).indices))
            first = logits.gather(1, theirs[:, :1].clamp(min=0))[:, 0]
            self._put("agreement", rows, lambda: first == best)

    def _put(self, name: str, rows: Any, number: Any) -> None:
        if name in self.names:
            self.values[name][rows] = number().to(self.values[name].dtype)


def _dot(a: Tensor, b: Tensor, pair: Pair) -> Tensor:
    return torch.mul(a, b, out=pair.spare).sum(dim=1)


def _shared(theirs: Tensor, own: Tensor) -> Tensor:
    """Share of the first (n, k) ids, of those that are there, that are among the second."""
    found = (theirs[:, :, None] == own[:, None, :]).any(dim=2).sum(dim=1)
    return found / (theirs >= 0).sum(dim=1).clamp(min=1)


def misses(told: Tensor | Sparse, logits: Tensor) -> Tensor:
    """Whether the student's likeliest token is not the teacher's, (n,)."""
    if isinstance(told, Sparse):
        logprobs = told.logprobs.masked_fill(told.ids < 0, -torch.inf)
        first = told.ids.gather(1, logprobs.argmax(dim=1, keepdim=True))
    else:
        first = told.argmax(dim=1, keepdim=True)
    own = logits.gather(1, first.clamp(0, logits.shape[1] - 1))[:, 0]
    return own < logits.amax(dim=1)
