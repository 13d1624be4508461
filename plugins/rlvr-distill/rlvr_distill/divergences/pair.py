"""A few rows of two distributions beside each other: what every divergence is computed from.

Shapes: n rows, B buckets (the vocabulary, or some tokens and the rest).
"""

from __future__ import annotations

import abc
from typing import Self

import torch
from attrs import frozen
from torch import Tensor

FLOOR = -1e4
"""Log-probabilities below this many nats count as this: 0 times it is 0, and sums stay finite."""

TINY = 1e-37
"""Smallest probability that a logarithm is taken of."""


@frozen(kw_only=True, eq=False)
class Pair:
    """
    Teacher p and student q in buffers that a kernel may overwrite.

    Attributes:
        log_p: (n, B) nats, up to a constant of the row until `settled`.
        p: (n, B), their exponentials, that sum to `mass_p`.
        log_q: (n, B), likewise of the student.
        q: (n, B).
        spare: (n, B), holds nothing.
        mass_p: (n, 1).
        mass_q: (n, 1).
        ids: (n, S) tokens of the first S buckets, where not all are the vocabulary in order.
        has_rest: Whether the last bucket is all tokens without one of their own.
        is_safe: Whether impossible tokens were lifted to `FLOOR`. It costs time, so it is done
            when values turn out not to be finite.
    """

    log_p: Tensor
    p: Tensor
    log_q: Tensor
    q: Tensor
    spare: Tensor
    mass_p: Tensor
    mass_q: Tensor
    ids: Tensor | None = None
    has_rest: bool = False
    is_safe: bool = False

    def settled(self) -> Self:
        """Itself, with log-probabilities and probabilities in the buffers."""
        for log, exps, mass in (
            (self.log_p, self.p, self.mass_p),
            (self.log_q, self.q, self.mass_q),
        ):
            log.sub_(mass.log())
            exps.mul_(mass.reciprocal())
            mass.fill_(1.0)
        return self


@frozen(kw_only=True, eq=False)
class Kernel(abc.ABC):
    """
    A divergence: `kernel(pair, pull, out)` gives its values (n,).

    It writes `pull` (n, 1) times the gradient by the student's logits, (n, B), into `out`. With
    g = dD/dq, q taken as free, that gradient is `q (g - sum(q g))`; with v = dD/d log q it is
    `v - q sum(v)`.

    Attributes:
        rows: Rows that it wants at a time, at least.
        support: Tokens of each side that get a bucket of their own, all others share one; 0: all.
        floors_rest: Whether a rest that the teacher finds all but impossible is kept above 1e-6.
    """

    rows: int = 1
    support: int = 0
    floors_rest: bool = True

    @abc.abstractmethod
    def __call__(self, pair: Pair, pull: Tensor, out: Tensor) -> Tensor: ...


class Workspace:
    """Five buffers (rows, B) that chunks are computed in, one after another."""

    def __init__(self, rows: int, buckets: int, like: Tensor, dtype: torch.dtype) -> None:
        self._buffers = [
            torch.empty(rows, buckets, dtype=dtype, device=like.device) for _ in range(5)
        ]

    def pair(
        self,
        teacher: Tensor,
        student: Tensor,
        heat: Tensor | float = 1.0,
        *,
        ids: Tensor | None = None,
        has_rest: bool = False,
        is_safe: bool = False,
    ) -> Pair:
        """
        Both sides of n rows, of their logits (n, B) divided by `heat` (n, 1).

        The logits are not changed, and not needed any more afterwards.
        """
        log_p, p, log_q, q, spare = (buffer[: len(student)] for buffer in self._buffers)
        return Pair(
            log_p=log_p,
            p=p,
            log_q=log_q,
            q=q,
            spare=spare,
            mass_p=_exponentials(teacher, heat, log_p, p, is_safe),
            mass_q=_exponentials(student, heat, log_q, q, is_safe),
            ids=ids,
            has_rest=has_rest,
            is_safe=is_safe,
        )


def _exponentials(
    logits: Tensor, heat: Tensor | float, log: Tensor, exps: Tensor, is_safe: bool
) -> Tensor:
    """Warmed logits and their exponentials, into two buffers; the sums (n, 1) of the latter."""
    warmed(logits, heat, log)
    if is_safe:
        log.clamp_(min=FLOOR)
    torch.exp(log, out=exps)
    return exps.sum(dim=1, keepdim=True)


def warmed(logits: Tensor, heat: Tensor | float, out: Tensor) -> None:
    """Logits over `heat`, less each row's largest, into `out` (which may be the logits)."""
    source = logits
    if logits.dtype != out.dtype:
        source = out.copy_(logits)
    if not (isinstance(heat, float) and heat == 1.0):
        source = torch.div(source, heat, out=out)
    torch.sub(source, source.amax(dim=1, keepdim=True), out=out)


def inner(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """Row sums (n, 1) of the product of two (n, B), which is left in `out`."""
    return torch.mul(a, b, out=out).sum(dim=1, keepdim=True)


def centred(pull: Tensor, q: Tensor) -> Tensor:
    """
    The gradient by logits, `v - q sum(v)`, of one by log-probabilities v, in place of v.

    q is overwritten too.
    """
    return pull.sub_(q.mul_(pull.sum(dim=1, keepdim=True)))
