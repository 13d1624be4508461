"""
The term of groups of tokens that student and teacher cut differently: compared by likelihood.

A group's text has probability P by the teacher and Q, the product over its tokens, by the student.
The divergence is that of (P, 1 - P) and (Q, 1 - Q): never one of vocabularies that do not match.

Shapes: N tokens, M of them in groups, G groups, C width.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rlvr_distill import spans
from rlvr_distill.distributions.functional import divergence
from rlvr_distill.distributions.gathered import Gathered
from rlvr_distill.distributions.sides import HeadLogits
from rlvr_distill.divergences.pair import Kernel
from rlvr_distill.divergences.transport import TotalVariation

_SURE = -1e-6
"""Largest logprob of a group: beyond it, 1 - Q is rounding."""


def group_term(
    some: Gathered, kernel: Kernel, weights: Tensor, is_grouped: Tensor, block: int, heat: float
) -> Tensor:
    """
    Weighted sum over groups, scalar; a group weighs what its tokens do together.

    Args:
        some: Data with the annotations "align/group" and "align/logprob".
        kernel: The divergence; total variation stands in for one that needs embeddings.
        weights: (N,) of the tokens, `spans` having divided those of a group by its size.
        is_grouped: (N,).
        block: Rows whose logits exist at one time.
        heat: Temperature that the teacher was asked at.
    """
    rows = is_grouped.nonzero()[:, 0]
    if not len(rows):
        return (some.student.hidden.sum() * 0.0).float()
    index, told = _groups(some)
    groups = torch.from_numpy(index).to(rows.device)
    of_groups = weights.new_zeros(len(told)).index_add(0, groups, weights[rows])
    logprobs = _token_logprobs(some.student, rows, some.targets[rows], block, heat)
    log_q = logprobs.new_zeros(len(told)).index_add(0, groups, logprobs)
    measure = TotalVariation() if hasattr(kernel, "embeddings") else kernel
    teacher = _both(torch.from_numpy(told).to(log_q))
    return divergence(_both(log_q), teacher, measure, weights=of_groups).loss


def _both(log: Tensor) -> Tensor:
    """Logprobs (G, 2) of a text and of all others."""
    log = log.clamp(max=_SURE)
    return torch.stack([log, torch.log(-torch.expm1(log))], dim=1)


def _token_logprobs(
    student: HeadLogits, rows: Tensor, targets: Tensor, block: int, heat: float
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


def _groups(some: Gathered) -> tuple[np.ndarray, np.ndarray]:
    """Number of the group of each grouped token, counted over all data; and each one's log P."""
    index: list[np.ndarray] = []
    told: list[np.ndarray] = []
    count = 0
    for datum in some.data:
        inside = spans.in_group(datum)
        numbers = np.asarray(datum.annotations.get(spans.GROUP, inside))[inside].astype(int)
        _, first, which = np.unique(numbers, return_index=True, return_inverse=True)
        index.append(which + count)
        if len(first):
            told.append(np.asarray(datum.annotations[spans.CHUNK_LOGPROB])[inside][first])
        count += len(first)
    return np.concatenate(index), np.concatenate(told).astype(np.float32)
