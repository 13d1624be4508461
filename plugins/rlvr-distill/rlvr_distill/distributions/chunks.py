"""Groups of tokens that a teacher with another tokenizer cuts otherwise: compared by likelihood.

A group's text has probability P by the teacher and Q, the product over its tokens, by the student.
The divergence is that of (P, 1 - P) and (Q, 1 - Q): never one of vocabularies that do not match.

Shapes: M tokens in groups, G groups, C width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from rlvr_distill.distributions.sides import Projection
from rlvr_distill.divergences.pair import Kernel, Workspace

_SURE = -1e-6
"""Largest logprob of a group: beyond it, 1 - Q is rounding."""


def token_logprobs(
    student: Projection, rows: Tensor, targets: Tensor, block: int, heat: float
) -> Tensor:
    """
    Logprobs (M,) of tokens at some rows, with gradients; a block of logits at a time, twice.

    Of logits over `heat`: the temperature at which the teacher told the likelihood of groups.
    """

    def some(hidden: Tensor, weights: Tensor, bias: Tensor | None, ids: Tensor) -> Tensor:
        logits = hidden.to(weights.dtype) @ weights.t()
        logits = (logits if bias is None else logits + bias) * student.scale
        if student.softcap:
            logits = student.softcap * torch.tanh(logits / student.softcap)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return torch.log_softmax(logits / heat, dim=1).gather(1, ids[:, None])[:, 0]

    parts = [
        checkpoint(
            some,
            student.hidden[rows[at : at + block]],
            student.weights,
            student.bias,
            targets[at : at + block],
            use_reentrant=False,
        )
        for at in range(0, len(rows), block)
    ]
    return torch.cat(parts)


def group_divergence(
    kernel: Kernel, logprobs: Tensor, groups: Tensor, told: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """
    Weighted sum over groups of the divergence of (P, 1 - P) and (Q, 1 - Q); and its values (G,).

    Args:
        kernel: The divergence; one that needs tokens apart (embeddings) cannot be.
        logprobs: (M,) of the student, with gradients.
        groups: (M,) 0 to G - 1.
        told: (G,) log P.
        weights: (G,).
    """
    log_q = logprobs.new_zeros(len(told)).index_add(0, groups, logprobs).clamp(max=_SURE)
    log_p = told.to(log_q).clamp(max=_SURE)
    loss, values = _Bernoulli.apply(_both(log_q), _both(log_p), kernel, weights.to(log_q))
    return loss, values


def _both(log: Tensor) -> Tensor:
    """Logprobs (G, 2) of a text and of all others."""
    return torch.stack([log, torch.log(-torch.expm1(log))], dim=1)


class _Bernoulli(torch.autograd.Function):
    """A kernel on (G, 2) logits, with its own gradient."""

    @staticmethod
    def forward(
        ctx: Any, student: Tensor, teacher: Tensor, kernel: Kernel, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        pull = torch.empty_like(student)
        work = Workspace(len(student), 2, student, student.dtype)
        pair = work.pair(teacher.detach(), student.detach(), is_safe=True)
        values = kernel(pair, weights[:, None], pull)
        ctx.save_for_backward(pull)
        ctx.mark_non_differentiable(values)
        return (values * weights).sum(), values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, pull: Tensor, _values: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * pull, None, None, None
