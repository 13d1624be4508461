"""The term of groups that student and teacher cut into different tokens."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rlvr_distill import spans
from rlvr_distill.distributions.chunks import group_divergence, token_logprobs
from rlvr_distill.distributions.gathered import Gathered
from rlvr_distill.divergences.pair import Kernel
from rlvr_distill.divergences.variation import TotalVariation


def group_term(
    some: Gathered, kernel: Kernel, weights: Tensor, is_grouped: Tensor, block: int, heat: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """
    Weighted sum over groups; a group weighs what its tokens do together.

    Args:
        some: Data with the annotations "align/group" and "align/logprob".
        kernel: The divergence; total variation stands in for one that needs embeddings.
        weights: (N,) of the tokens, `spans` having divided those of a group by its size.
        is_grouped: (N,).
        block: Rows whose logits exist at one time.
        heat: Temperature that the teacher was asked at.

    Returns:
        The term, and `align/chunk`: the same without gradient.
    """
    rows = is_grouped.nonzero()[:, 0]
    if not len(rows):
        zero = some.student.hidden.sum() * 0.0
        return zero.float(), {"align/chunk": zero.detach().float()}
    index, told = _groups(some)
    groups = torch.from_numpy(index).to(rows.device)
    of_groups = weights.new_zeros(len(told)).index_add(0, groups, weights[rows])
    logprobs = token_logprobs(some.student, rows, some.targets[rows], block, heat)
    measure = TotalVariation() if hasattr(kernel, "embeddings") else kernel
    loss, _ = group_divergence(
        measure, logprobs, groups, torch.from_numpy(told).to(logprobs), of_groups
    )
    return loss, {"align/chunk": loss.detach()}


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
