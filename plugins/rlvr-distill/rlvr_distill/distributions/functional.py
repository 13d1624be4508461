"""Distillation as a function of tensors: a weighted sum of divergences, with its gradient.

    loss = divergence(logits, teacher_logits, kernel("jsd", beta=0.5), weights=mask / mask.sum())

Shapes: N positions (or any leading shape), V vocabulary, C width, k tokens.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import torch
from attrs import frozen
from torch import Tensor

from rlvr_distill.distributions.buckets import Buckets
from rlvr_distill.distributions.comparison import Comparison
from rlvr_distill.distributions.dense import DenseDivergence
from rlvr_distill.distributions.fused import FusedDivergence
from rlvr_distill.distributions.seen import Seen
from rlvr_distill.distributions.sides import HeadLogits, Logits, Sparse, Teacher
from rlvr_distill.divergences.pair import Kernel


@frozen(kw_only=True, eq=False)
class Outcome:
    """
    What a comparison came to.

    Attributes:
        loss: Weighted sum, scalar, with its gradient; `backward` works once.
        values: (N,) divergences without weights or squared temperature, detached; 0 where a row
            weighs nothing.
        seen: Further numbers (N,) by name, detached.
    """

    loss: Tensor
    values: Tensor
    seen: Mapping[str, Tensor]


def divergence(
    student: Tensor | HeadLogits,
    teacher: Teacher,
    kernel: Kernel,
    *,
    weights: Tensor | None = None,
    temperature: Tensor | float = 1.0,
    scale_t2: bool = False,
    targets: Tensor | None = None,
    names: tuple[str, ...] = (),
    chunk: int = 0,
    block: int = 256,
    doubles_misses: bool = False,
) -> Outcome:
    """
    Sum over positions of `weights * D(teacher, student)`, computed in float32 at least.

    Only rows that weigh something are computed. Memory above the inputs: the gradient and a few
    chunks; for a `HeadLogits`, the gradients of states and head, and a block of logits.

    Args:
        student: Logits (N, V), float16 to float64, or states and a head.
        teacher: Logits or logprobs (N, V), states and a head, or the logprobs of a few tokens;
            gets no gradient. Where one vocabulary is padded, both are cut to the shorter one.
        kernel: The divergence, see `catalogue.kernel`.
        weights: (N,), 1 / N each by default.
        temperature: One, or (N,). The logprobs of few tokens are at it already.
        scale_t2: Multiply each row by its temperature squared.
        targets: (N,) tokens that stand there.
        names: Of `Outcome.seen`, see `seen.NAMES`.
        chunk: Rows at a time; 0: as suits the machine.
        block: Rows whose logits a `HeadLogits` makes at a time.
        doubles_misses: Whether a row counts twice where the likeliest tokens differ.

    Raises:
        ValueError: The sides do not belong together.
    """
    own = student if isinstance(student, Tensor) else student.hidden
    count = own.shape[:-1].numel()
    theirs = (Logits(teacher) if isinstance(teacher, Tensor) else teacher).flat()
    if len(theirs) != count:
        raise ValueError(f"a student of {count} rows and a teacher of {len(theirs)}")
    wide = torch.promote_types(own.dtype, torch.float32)
    if weights is None:
        weights = own.new_full((count,), 1 / max(count, 1), dtype=wide)
    weights = weights.detach().reshape(-1).to(own.device, wide, copy=doubles_misses)
    heat = torch.as_tensor(temperature).to(weights).reshape(-1, 1).expand(count, 1)
    if scale_t2:
        weights = weights * heat[:, 0].square()
    comparison = Comparison(
        kernel=kernel,
        teacher=theirs,
        weights=weights,
        pull=weights[:, None] / heat,
        heat=heat if isinstance(temperature, Tensor) else float(temperature),
        targets=None if targets is None else targets.reshape(-1),
        names=names,
        chunk=chunk,
        buckets=Buckets.of(theirs, kernel, wide) if isinstance(theirs, Sparse) else None,
        doubles_misses=doubles_misses,
    )
    seen = Seen(count, own.detach().new_empty(0, dtype=wide), names)
    if isinstance(student, Tensor):
        loss, values = DenseDivergence.apply(own.flatten(0, -2), comparison, seen)
    else:
        flat = attrs.evolve(student, hidden=own.flatten(0, -2))
        loss, values = FusedDivergence.apply(
            flat.hidden, flat.weights, flat.bias, flat, comparison, seen, block
        )
    return Outcome(loss=loss, values=values, seen=seen.values)
