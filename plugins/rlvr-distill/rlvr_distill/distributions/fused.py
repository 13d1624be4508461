"""Divergence from hidden states and an output head: logits exist for one block of rows at a time.

The same four matrix products as through whole logits (both heads, the gradients of states and
weights), the last one left out where the head is frozen.

Shapes: N positions, n of a block, C width, W vocabulary of the student.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rlvr_distill.distributions.comparison import Comparison
from rlvr_distill.distributions.dense import handed_over
from rlvr_distill.distributions.seen import Seen
from rlvr_distill.distributions.sides import HeadLogits, Sparse
from rlvr_distill.divergences.pair import Workspace


class FusedDivergence(torch.autograd.Function):
    """
    `apply(hidden, weights, bias, settings...)` gives the weighted sum, scalar, and values (N,).

    Gradients are made on the way forward and handed over by the first `backward`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        student: HeadLogits,
        comparison: Comparison,
        seen: Seen,
        block: int,
    ) -> tuple[Tensor, Tensor]:
        """Block by block; `student` has the same tensors, and how the head scales and caps."""
        work = _Work(student, comparison, seen, ctx.needs_input_grad[:3])
        work.run(block)
        ctx.gradients = [work.d_hidden, work.d_weights, work.d_bias]
        ctx.mark_non_differentiable(work.values)
        return (work.values * comparison.weights).sum(), work.values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, pull: Tensor, _values: Tensor) -> tuple[Tensor | None, ...]:
        return *handed_over(ctx, pull), None, None, None, None


class _Work:
    """The buffers of one pass."""

    def __init__(
        self, student: HeadLogits, comparison: Comparison, seen: Seen, needs: tuple[bool, ...]
    ) -> None:
        self.student, self.comparison, self.seen = student, comparison, seen
        self.hidden, self.weights, bias = student.hidden, student.weights, student.bias
        hidden, weights = self.hidden, self.weights
        self.dtype = torch.promote_types(weights.dtype, torch.float32)
        self.values = hidden.new_zeros(len(hidden), dtype=self.dtype)
        self.size = comparison.vocabulary(len(weights))
        self.needs_grad = any(needs)
        self.d_hidden = torch.zeros_like(hidden) if needs[0] else None
        self.d_weights: Tensor | None = None  # float32 at least, until all blocks are added
        self.d_bias = None if bias is None or not needs[2] else torch.zeros_like(bias)
        self._needs_weights = needs[1]

    def run(self, block: int) -> None:
        comparison, places = self.comparison, self.comparison.live()
        count = len(self.hidden) if places is None else len(places)
        block = max(1, min(block, count))
        logits = self.values.new_empty(block, len(self.weights))
        theirs = comparison.teacher.buffer(block, self.values) if count else None
        step = min(comparison.rows_at_once(self.size, self.values), block)
        work = comparison.workspace(step, self.size, self.values)
        for first in range(0, count, block):
            at = slice(first, min(first + block, count))
            rows = at if places is None else places[at]
            pull, is_safe = self._compared(comparison, at, places, (logits, theirs), step, work)
            if not is_safe and not bool(torch.isfinite(self.values[rows]).all()):
                again = comparison.again()  # the logits were overwritten: made anew
                pull, _ = self._compared(again, at, places, (logits, theirs), step, work, True)
            if self.needs_grad:
                self._push(pull, rows)
        if self._needs_weights:
            found = torch.zeros_like(self.weights) if self.d_weights is None else self.d_weights
            self.d_weights = found.to(self.weights.dtype)

    def _compared(
        self,
        comparison: Comparison,
        at: slice,
        places: Tensor | None,
        buffers: tuple[Tensor, Tensor | None],
        step: int,
        work: Workspace | None,
        is_safe: bool = False,
    ) -> tuple[Tensor, bool]:
        """A block's gradient (n, W) by `W h + b`, before `scale`; whether it was done safely."""
        rows = at if places is None else places[at]
        own = self.student.at(rows, buffers[0])
        told = comparison.teacher.at(rows, buffers[1])
        is_safe = is_safe or own.is_cuda or not bool(torch.isfinite(own.sum() + _sum(told)))
        slope, cap = None, self.student.softcap
        if cap and self.needs_grad:  # derivative (n, W), before the logits are overwritten
            slope = 1 - (own / cap).square_()
        for start in range(0, len(own), step):
            few = slice(start, min(start + step, len(own)))
            some: Any = slice(at.start + few.start, at.start + few.stop)
            some = some if places is None else places[some]
            self.values[some] = comparison.compare(
                told.at(few) if isinstance(told, Sparse) else told[few],
                own[few],
                some,
                own[few],
                work,
                self.seen,
                is_safe,
            )
        return own if slope is None else own.mul_(slope), is_safe

    def _push(self, pull: Tensor, rows: Any) -> None:
        """The gradient by the block's logits (n, W), on to states, weights and bias."""
        if self.student.scale != 1.0:
            pull.mul_(self.student.scale)
        weights = self.weights.detach()
        narrow = pull.to(weights.dtype)
        if self.d_hidden is not None:
            self.d_hidden[rows] = (narrow @ weights).to(self.d_hidden.dtype)
        if self._needs_weights:
            states = self.hidden.detach()[rows].to(weights.dtype)
            if self.d_weights is None:
                self.d_weights = (narrow.t() @ states).to(self.dtype)
            elif self.d_weights.dtype == states.dtype:
                self.d_weights.addmm_(narrow.t(), states)
            else:  # blocks add up in float32
                self.d_weights += narrow.t() @ states
        if self.d_bias is not None:
            self.d_bias += pull.sum(dim=0).to(self.d_bias.dtype)


def _sum(told: Tensor | Sparse) -> Tensor:
    """Of logits; not finite where one is not."""
    return told.logprobs.new_zeros(()) if isinstance(told, Sparse) else told.sum()
