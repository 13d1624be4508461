"""Rows times a weight that is laid out for few rows at a time, on a CPU, in float32.

`nn.Linear` keeps weights transposed, which costs products with a few dozen rows up to half of their
speed. A small weight is laid out the other way round; a large one, which comes from memory each
time, as oneDNN blocks it (operators that torch's compiler uses).

Shapes: R rows, I inputs, O outputs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_LARGE = 1 << 19  # numbers of a weight from which on oneDNN's layout is the faster one
_MANY = 192  # rows from which on a large weight is as fast as it lies
_HINT = 16  # rows that oneDNN is asked to think of; the layout is as good for others

# gelu(x) = x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)), the same as with tanh
_LINEAR, _CUBIC = torch.tensor(1.5957691216057308), 0.0713548162726009


class Product:
    """
    A copy of a weight (O, I), and the bias (O,) as it is.

    Args:
        weight: Float32, on the CPU.
        bias: Likewise; or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight.detach()
        self._bias = None if bias is None else bias.detach()
        self._is_large = weight.numel() >= _LARGE and _has_blocks()
        if self._is_large:
            self._laid_out: Tensor = torch.ops.mkldnn._reorder_linear_weight(self._weight, _HINT)
        else:
            self._laid_out = self._weight.t().contiguous()  # (I, O)

    def __call__(self, x: Tensor) -> Tensor:
        """`x W^T + b`: rows (..., I) to (..., O)."""
        flat = x.reshape(-1, x.shape[-1])
        return self._product(flat).view(*x.shape[:-1], -1)

    def gelu(self, x: Tensor) -> Tensor:
        """Tanh GELU of `x W^T + b`: rows (R, I) to (R, O)."""
        if self._is_large:  # of many rows too: what is saved is a pass over the result
            return self._blocked(x, "gelu", "tanh")
        return gelu(self._product(x))

    def add_to(self, total: Tensor, x: Tensor) -> None:
        """Add `x W^T + b` of rows (R, I) to a total (R, O), in place."""
        if self._is_large:
            total.add_(self._product(x))
            return
        total.addmm_(x, self._laid_out)
        if self._bias is not None:
            total.add_(self._bias)

    def _product(self, x: Tensor) -> Tensor:
        if self._is_large:
            if len(x) < _MANY:
                return self._blocked(x)
            return F.linear(x, self._weight, self._bias)
        if self._bias is None:
            return x @ self._laid_out
        return torch.addmm(self._bias, x, self._laid_out)

    def _blocked(self, x: Tensor, after: str = "none", how: str = "") -> Tensor:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._laid_out, self._bias, after, [], how
        )
        return found


def gelu(x: Tensor) -> Tensor:
    """Tanh GELU in half of the time that torch's takes on a CPU; equal to rounding."""
    inner = torch.addcmul(_LINEAR, x, x, value=_CUBIC)
    return inner.mul_(x).sigmoid_().mul_(x)


def _has_blocks() -> bool:
    names = ("_reorder_linear_weight", "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(
        hasattr(torch.ops.mkldnn, name) for name in names
    )
