"""The products of an output head: logits in float32, and their gradients.

Shapes: n positions, C width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

_ROWS = 1 << 13
"""Rows of a head in lower precision that are float32 at one time."""


class HeadProduct:
    """
    The plain version: everything in float32. A head in lower precision is converted in parts.

    Attributes:
        dtype: Of the inputs.
    """

    dtype = torch.float32

    def inputs(self, values: Tensor) -> Tensor:
        """States (n, C), gradients (n, V) or a head (V, C) as products take them."""
        return values.to(self.dtype)

    def weights(self, head: Tensor) -> Tensor:
        """A head (V, C) as it is kept for several products."""
        return head

    def logits(self, states: Tensor, weights: Tensor, logits: Tensor) -> Tensor:
        """`states @ weights.T` of `inputs` (n, C) and a kept head, into float32 (n, V)."""
        if weights.dtype == torch.float32:
            return torch.mm(states, weights.t(), out=logits)
        for at, part in self._parts(weights):
            logits[:, at] = states @ part.t()
        return logits

    def by_states(self, d_logits: Tensor, weights: Tensor) -> Tensor:
        """`d_logits @ weights`: from the gradient of logits, float32 (n, V), that of states."""
        if weights.dtype == torch.float32:
            return d_logits @ weights
        found = d_logits.new_zeros(len(d_logits), weights.shape[1])
        for at, part in self._parts(weights):
            found.addmm_(d_logits[:, at], part)
        return found

    def add_by_weights(self, total: Tensor, d_logits: Tensor, states: Tensor) -> None:
        """Add `d_logits.T @ states` of `inputs` (n, C) to a head's gradient, float32 (V, C)."""
        total.addmm_(d_logits.t(), states)

    def _parts(self, weights: Tensor) -> Iterator[tuple[slice, Tensor]]:
        for first in range(0, len(weights), _ROWS):
            at = slice(first, first + _ROWS)
            yield at, self.inputs(weights[at])


class BFloat16HeadProduct(HeadProduct):
    """
    Inputs rounded to bfloat16, sums in float32: tensor cores, and no logit is rounded.

    A head in float32 is rounded once for several products. Not for a CPU, whose PyTorch has no such
    product.
    """

    dtype = torch.bfloat16

    def weights(self, head: Tensor) -> Tensor:
        return self.inputs(head)

    def logits(self, states: Tensor, weights: Tensor, logits: Tensor) -> Tensor:
        return torch.mm(states, weights.t(), out_dtype=torch.float32, out=logits)

    def by_states(self, d_logits: Tensor, weights: Tensor) -> Tensor:
        return torch.mm(self.inputs(d_logits), weights, out_dtype=torch.float32)

    def add_by_weights(self, total: Tensor, d_logits: Tensor, states: Tensor) -> None:
        rounded = self.inputs(d_logits).t()
        torch.addmm(total, rounded, states, out_dtype=torch.float32, out=total)


FLOAT32 = HeadProduct()
