"""Rows times a weight that lies as `nn.Linear` keeps it, a few at a time, on a CPU, in float32.

The product that `nn.Linear` makes of a few dozen rows takes up to twice the time it could, and its
rounding depends on the number of rows. So the weight is copied as oneDNN blocks it, by operators
that torch's compiler uses. From two rows on, each row then has the same bits beside any others.

Shapes: R rows, I inputs, O outputs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_HINT = 16  # rows that oneDNN is asked to think of; the layout is as good for others

# gelu(x) = x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)), the same as with tanh
_LINEAR, _CUBIC = torch.tensor(1.5957691216057308), 0.0713548162726009


class Matmul:
    """
    A copy of a weight (O, I), if oneDNN is there, and the bias (O,) or None.

    Both float32, on the CPU; the weight must not change.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight.detach()
        self._bias = None if bias is None else bias.detach()
        self._is_blocked = has_blocks()
        if self._is_blocked:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(self._weight, _HINT)

    def __call__(self, x: Tensor) -> Tensor:
        """`x W^T + b`: rows (..., I) to (..., O)."""
        if self._is_blocked:
            return self._product(x.contiguous())
        return F.linear(x, self._weight, self._bias)

    def gelu(self, x: Tensor) -> Tensor:
        """Tanh GELU of `x W^T + b`: rows (R, I) to (R, O)."""
        if self._is_blocked:
            return self._product(x, "gelu", "tanh")  # saves a pass over the result
        return gelu(F.linear(x, self._weight, self._bias))

    def added_to(self, total: Tensor, x: Tensor) -> Tensor:
        """`total + x W^T + b` of rows (R, I) and a total (R, O)."""
        if not self._is_blocked:
            return total + F.linear(x, self._weight, self._bias)
        found: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x, total, self._weight, self._bias, "add"
        )
        return found

    def _product(self, x: Tensor, after: str = "none", how: str = "") -> Tensor:
        found: Tensor = torch.ops.mkldnn._linear_pointwise.default(
            x, self._weight, self._bias, after, [], how
        )
        return found


def gelu(x: Tensor) -> Tensor:
    """Tanh GELU in half of the time that torch's takes on a CPU; equal to rounding."""
    inner = torch.addcmul(_LINEAR, x, x, value=_CUBIC)
    return inner.mul_(x).sigmoid_().mul_(x)


def has_blocks() -> bool:
    """Whether this torch has the operators for blocked weights."""
    names = ("_reorder_linear_weight", "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(
        hasattr(torch.ops.mkldnn, name) for name in names
    )
