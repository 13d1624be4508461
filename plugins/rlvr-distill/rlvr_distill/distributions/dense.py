"""Divergence from logits that are there: the only new (N, W) tensor is the gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rlvr_distill.distributions.comparison import Comparison
from rlvr_distill.distributions.seen import Seen

_LARGE = 1 << 22
"""Bytes from which on NumPy asks the system for pages of 2 MiB (Linux)."""


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
        values = torch.zeros(len(logits), dtype=comparison.pull.dtype, device=logits.device)
        gradient = None
        if ctx.needs_input_grad[0]:
            gradient = _zeros(logits.shape, logits.dtype, logits.device)
        places, is_safe = comparison.live(), logits.is_cuda
        _run(comparison, logits, places, values, gradient, seen, is_safe)
        if not is_safe and not bool(torch.isfinite(values).all()):
            odd = torch.isfinite(values).logical_not_().nonzero()[:, 0]
            _run(comparison.again(), logits, odd, values, gradient, seen, True)
        ctx.gradients = [gradient]
        ctx.mark_non_differentiable(values)
        return (values * comparison.weights).sum(), values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, pull: Tensor, _values: Tensor) -> tuple[Tensor | None, ...]:
        return *handed_over(ctx, pull), None, None


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
        told = comparison.teacher.at(rows)
        values[rows] = comparison.compare(told, logits[rows], rows, out, work, seen, is_safe)
        if gradient is not None and not is_direct:
            gradient[rows] = out.to(gradient.dtype)


def handed_over(ctx: Any, pull: Tensor) -> list[Tensor | None]:
    """The gradients that `ctx` holds, scaled in place and let go, so that nothing copies them."""
    gradients: list[Tensor | None] | None = ctx.gradients
    if gradients is None:
        raise RuntimeError("the gradient of a divergence was taken twice: call it again for that")
    ctx.gradients = None
    if pull.is_cuda or pull.item() != 1.0:
        return [None if g is None else g.mul_(pull.to(g.dtype)) for g in gradients]
    return gradients


def _zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """
    Zeros; what is never written to costs neither time nor memory.

    NumPy allocates them, because torch does not ask for large pages: filling a gradient of the size
    of the logits then spends a third of its time on faults of small ones.
    """
    size = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or size < _LARGE:
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(size, np.uint8)).view(dtype).view(shape)
