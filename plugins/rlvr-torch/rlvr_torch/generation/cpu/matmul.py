"""Rows times a weight that lies as `nn.Linear` keeps it, a few at a time, on a CPU, in float32.

The product that `nn.Linear` makes of a few dozen rows takes up to twice the time it could. A small
weight is copied the other way round. A large one comes from memory each time: for a few dozen rows
the weight is multiplied by the rows, not the rows by the weight, which is faster (each number is
read once and used at once, so it seems that a core waits less); for fewer it is copied as oneDNN
blocks it. These are operators that torch's compiler uses.

Shapes: R rows, I inputs, O outputs.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

_LARGE = 1 << 19  # numbers of a weight from which on it comes from memory
_MANY = 112  # rows from which on a large weight is as fast as it lies
_STREAMED = 24  # rows from which on a large weight is multiplied by them, in whole vectors:
_VECTOR = 16
_IDLE = 8  # places of a vector that may be empty
_TRIALS = 4  # products of fewer rows from which on a copy in blocks pays
_PIECE = 1 << 17  # numbers of a result that stay in a core's cache
_HINT = 16  # rows that oneDNN is asked to think of; the layout is as good for others

_Way = Literal["small", "streamed", "blocks", "as it lies"]

# gelu(x) = x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)), the same as with tanh
_LINEAR, _CUBIC = torch.tensor(1.5957691216057308), 0.0713548162726009


class Matmul:
    """
    A weight (O, I), copied where that makes it faster, and the bias (O,).

    Args:
        weight: Float32, on the CPU; it must not change.
        bias: Likewise; or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight.detach()
        self._bias = None if bias is None else bias.detach()
        self._is_large = weight.numel() >= _LARGE and _has_blocks()
        self._blocks: Tensor | None = None  # of a large one
        self._trials = 0
        if not self._is_large:
            self._turned = self._weight.t().contiguous()  # (I, O)

    def __call__(self, x: Tensor) -> Tensor:
        """`x W^T + b`: rows (..., I) to (..., O)."""
        flat = x.reshape(-1, x.shape[-1])
        return self._product(flat).view(*x.shape[:-1], -1)

    def gelu(self, x: Tensor) -> Tensor:
        """Tanh GELU of `x W^T + b`: rows (R, I) to (R, O), in any order of memory."""
        way = self._way(len(x))
        if way == "small":
            return gelu(self._small(x))
        if way == "streamed":
            columns = self._columns(x)
            return gelu(columns if self._bias is None else columns.add_(self._bias[:, None])).t()
        weight = self._blocked() if way == "blocks" else self._weight
        return _linear(x, weight, self._bias, "gelu", "tanh")  # saves a pass over the result

    def add_to(self, total: Tensor, x: Tensor) -> None:
        """Add `x W^T + b` of rows (R, I), in any order of memory, to a total (R, O), in place."""
        way = self._way(len(x))
        if way == "small":
            total.addmm_(x, self._turned)
        elif way == "streamed":
            total.add_(self._columns(x).t())
        else:
            total.add_(self._large(x, way))
            return
        if self._bias is not None:
            total.add_(self._bias)

    def _product(self, x: Tensor) -> Tensor:
        """Rows (R, O), contiguous."""
        way = self._way(len(x))
        if way == "small":
            return self._small(x)
        return self._streamed(x) if way == "streamed" else self._large(x, way)

    def _way(self, rows: int) -> _Way:
        if not self._is_large:
            return "small"
        if rows >= _MANY:
            return "as it lies"
        if not self._weight.is_contiguous():
            return "blocks"
        if rows >= _STREAMED and -rows % _VECTOR <= _IDLE:
            return "streamed"
        self._trials += 1
        return "streamed" if self._trials <= _TRIALS else "blocks"

    def _small(self, x: Tensor) -> Tensor:
        if self._bias is None:
            return x @ self._turned
        return torch.addmm(self._bias, x, self._turned)

    def _large(self, x: Tensor, way: _Way) -> Tensor:
        if way == "blocks":
            return _linear(x, self._blocked(), self._bias)
        return F.linear(x, self._weight, self._bias)

    def _streamed(self, x: Tensor) -> Tensor:
        """Rows (R, O), contiguous; never more columns at a time than stay in the cache."""
        out, by_columns = x.new_empty(len(x), len(self._weight)), _by_columns(x)
        step = max(1, _PIECE // len(x))
        for i in range(0, len(self._weight), step):
            piece = _linear(self._weight[i : i + step], by_columns)
            out[:, i : i + step] = piece[:, : len(x)].t()
        return out if self._bias is None else out.add_(self._bias)

    def _columns(self, x: Tensor) -> Tensor:
        """`W x^T` of a large weight, (O, R), without the bias."""
        return _linear(self._weight, _by_columns(x))[:, : len(x)]

    def _blocked(self) -> Tensor:
        if self._blocks is None:
            blocks: Tensor = torch.ops.mkldnn._reorder_linear_weight(self._weight, _HINT)
            self._blocks = blocks
        return self._blocks


def _by_columns(x: Tensor) -> Tensor:
    """Rows (R, I) column by column in memory, and rows of 0 up to whole vectors."""
    idle = -len(x) % _VECTOR
    return (F.pad(x.t(), (0, idle)) if idle else x.t().contiguous()).t()


def _linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, after: str = "none", how: str = ""
) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, after, [], how)
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
