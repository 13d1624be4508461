"""Divergence from logits that are there: the only new (N, W) tensor is the gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rlvr_distill.distributions.comparison import Comparison
from rlvr_distill.distributions.large import zeros
from rlvr_distill.distributions.seen import Seen


class DenseDivergence(torch.autograd.Function):
    """
    `apply(logits, comparison, seen)` gives the weighted sum, scalar, and the values (N,).

    The gradient is made on the way forward and handed over by the first `backward`; there is no
    second one.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, comparison: Comparison, seen: Seen
    ) -> tuple[Tensor, Tensor]:
        """Values on the way, and the gradient too where one is needed."""
        values = torch.zeros(len(logits), dtype=comparison.pull.dtype, device=logits.device)
        gradient = None
        if ctx.needs_input_grad[0]:
            gradient = zeros(logits.shape, logits.dtype, logits.device)
        places, is_safe = comparison.live(), logits.is_cuda
        _run(comparison, logits, places, values, gradient, seen, is_safe)
        if not is_safe and not bool(torch.isfinite(values).all()):
            odd = torch.isfinite(values).logical_not_().nonzero()[:, 0]
            _run(comparison.again(), logits, odd, values, gradient, seen, True)
        ctx.gradient = gradient
        ctx.mark_non_differentiable(values)
        return (values * comparison.weights).sum(), values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, pull: Tensor, _values: Tensor) -> tuple[Tensor | None, None, None]:
        """The gradient, times that of the sum."""
        return handed_over(ctx, pull), None, None


def _run(
    comparison: Comparison,
    logits: Tensor,
    places: Tensor | None,
    values: Tensor,
    gradient: Tensor | None,
    seen: Seen,
    is_safe: bool,
) -> None:
    """Fill values (N,) and gradient (N, W) at some places; None: at all."""
    size = comparison.vocabulary(logits.shape[1])
    count = len(logits) if places is None else len(places)
    step = min(comparison.rows_at_once(size, values), max(count, 1))
    work = comparison.workspace(step, size, values)
    is_direct = gradient is not None and places is None and values.dtype == logits.dtype
    buffer = logits if is_direct else values.new_empty(step, logits.shape[1])
    for first in range(0, count, step):
        at = slice(first, min(first + step, count))
        rows = at if places is None else places[at]
        out = buffer[: at.stop - first]
        if is_direct and gradient is not None:
            out = gradient[at]
        told = comparison.told(rows)
        values[rows] = comparison.compare(told, logits[rows], rows, out, work, seen, is_safe)
        if gradient is not None and not is_direct:
            gradient[rows] = out.to(gradient.dtype)


def handed_over(ctx: Any, pull: Tensor) -> Tensor | None:
    """The gradient that `ctx` holds, scaled in place and let go, so that nothing copies it."""
    gradient: Tensor | None = ctx.gradient
    if gradient is None:
        raise RuntimeError("the gradient of a divergence was taken twice: call it again for that")
    ctx.gradient = None
    if pull.is_cuda or pull.item() != 1.0:
        gradient.mul_(pull.to(gradient.dtype))
    return gradient
