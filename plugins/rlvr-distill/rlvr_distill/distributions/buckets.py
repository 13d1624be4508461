"""Some tokens apart and all others in one bucket: a student's logits beside few teacher's logprobs.

The divergence of the coarse distributions is never above that of the whole ones. Its gradient
spreads over the rest in proportion to the student's probabilities there.

Shapes: n rows, S tokens, B = S or S + 1 buckets, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import attrs
import torch
from attrs import frozen
from torch import Tensor

from rlvr_distill.distributions.sides import Sparse
from rlvr_distill.divergences.pair import FLOOR, Kernel, Workspace, warmed

LEAST_REST = 1e-6
"""A rest of less probability is rounding: 0 to losses that only ask where the teacher goes."""


@frozen(kw_only=True, eq=False)
class Buckets:
    """
    What a teacher told of n rows, ready to be compared: made once for all rows.

    Attributes:
        ids: (n, S), each row's absent ones replaced by one that is there.
        is_there: (n, S).
        log_p: (n, B) nats.
        has_rest: Whether the last bucket is the rest.
    """

    ids: Tensor
    is_there: Tensor
    log_p: Tensor
    has_rest: bool

    @classmethod
    def of(cls, told: Sparse, kernel: Kernel, dtype: torch.dtype) -> Buckets:
        """For a divergence and the type it is computed in; each row has a token at least."""
        is_there = told.ids >= 0
        log_p = told.logprobs.to(dtype).masked_fill(~is_there, FLOOR).clamp_(min=FLOOR)
        if told.has_rest:
            log_p = torch.cat([log_p, left_over(log_p, kernel.floors_rest)], dim=1)
        some = told.ids.amax(dim=1, keepdim=True).clamp_(min=0)
        return cls(
            ids=torch.where(is_there, told.ids, some),
            is_there=is_there,
            log_p=log_p,
            has_rest=told.has_rest,
        )

    def rows(self, chosen: Any) -> Buckets:
        return attrs.evolve(
            self,
            ids=self.ids[chosen],
            is_there=self.is_there[chosen],
            log_p=self.log_p[chosen],
        )


def compare_buckets(
    kernel: Kernel, told: Buckets, logits: Tensor, heat: Tensor | float, out: Tensor, pull: Tensor
) -> Tensor:
    """
    Values (n,) of the coarse divergence; writes `pull` times the gradient by logits into `out`.

    Args:
        kernel: The divergence.
        told: The teacher's side.
        logits: (n, V) of the student; may be `out` itself.
        heat: Temperature of the student's side, (n, 1).
        out: (n, V) float32 or float64, overwritten.
        pull: (n, 1), of the gradient with respect to the logits over `heat`.
    """
    ids, is_absent = told.ids, ~told.is_there
    warmed(logits, heat, out)
    log_q = out.gather(1, ids).masked_fill_(is_absent, FLOOR)  # up to a constant of the row
    out.exp_()
    if told.has_rest:
        out.scatter_(1, ids, 0.0)
        rest = out.sum(dim=1, keepdim=True).clamp_(min=torch.finfo(out.dtype).tiny)
        log_q = torch.cat([log_q, rest.log()], dim=1)
    work = Workspace(len(log_q), log_q.shape[1], log_q, out.dtype)
    pair = work.pair(told.log_p, log_q, ids=ids, has_rest=told.has_rest, is_safe=True)
    gradient = torch.empty_like(log_q)
    values = kernel(pair, pull, gradient)
    if told.has_rest:
        out.mul_(gradient[:, -1:] / rest)
        gradient = gradient[:, :-1]
    else:
        out.zero_()
    out.scatter_add_(1, ids, gradient.masked_fill(is_absent, 0.0))
    return values


def left_over(log_p: Tensor, is_floored: bool) -> Tensor:
    """Log-probability (n, 1) of what (n, S) log-probabilities leave over, `LEAST_REST` at least."""
    told = torch.logsumexp(log_p, dim=1, keepdim=True)
    rest = torch.log(-torch.expm1(told.clamp(max=-LEAST_REST)))
    if is_floored:
        return rest
    return torch.where(told > math.log1p(-LEAST_REST), torch.full_like(rest, FLOOR), rest)


def likeliest(
    teacher: Tensor, student: Tensor, size: int, targets: Tensor | None, heat: Tensor | float
) -> Sparse:
    """
    The `size` likeliest tokens of either side and the one that stands there, told by the teacher.

    Args:
        teacher: (n, V) logits.
        student: (n, V) logits.
        size: Of each side.
        targets: (n,) ids, or None.
        heat: Temperature, (n, 1).
    """
    size = min(size, teacher.shape[1])
    parts = [teacher.topk(size, dim=1).indices, student.topk(size, dim=1).indices]
    if targets is not None:
        parts.append(targets[:, None])
    ids = torch.cat(parts, dim=1).sort(dim=1).values
    is_again = torch.zeros_like(ids, dtype=torch.bool)
    is_again[:, 1:] = ids[:, 1:] == ids[:, :-1]
    wide = teacher.to(torch.promote_types(teacher.dtype, torch.float32)) / heat
    logprobs = wide.gather(1, ids) - torch.logsumexp(wide, dim=1, keepdim=True)
    return Sparse(
        ids=ids.masked_fill(is_again, -1),
        logprobs=logprobs.masked_fill(is_again, -math.inf),
        has_rest=True,
    )
