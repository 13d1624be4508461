"""Weights as matrix products of few rows want them, for as long as a CPU decodes.

A decoding pass multiplies a few dozen rows by every weight. `nn.Linear` keeps weights transposed,
which costs such products up to half of their speed. Here they are laid out once a generation: those
of layers the other way round, a large head as oneDNN blocks it (an operator that torch's compiler
uses). The weights themselves stay where they are, and nothing is kept after it. On a GPU, in lower
precision, or for a few tokens, products are made as always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlvr_torch.net import Net

_LARGE_HEAD = 1 << 22  # numbers from which on oneDNN's layout is the faster one
_FEWEST_PASSES = 16  # fewer do not pay for the layout


class PackedWeights:
    """
    Products with a net's weights; `packed` is the time in which they are fast.

    Args:
        net: Whose linear layers and head they are.
        dtype: What products are computed in.
        rows: About how many rows a pass has.
        passes: About how many passes there are.
    """

    def __init__(self, net: Net, dtype: torch.dtype, rows: int, passes: int) -> None:
        self._net = net
        self._rows = rows
        self._head: Callable[[Tensor, Tensor | None], Tensor] | None = None
        is_plain = dtype == torch.float32 and net.head.device.type == "cpu"
        self._is_on = is_plain and passes >= _FEWEST_PASSES

    @contextmanager
    def packed(self) -> Iterator[None]:
        """Fast inside; weights must not change there."""
        if not self._is_on:
            yield
            return
        linears = [module for module in self._net.module.modules() if type(module) is nn.Linear]
        try:
            for module in linears:
                if _is_plain(module.weight):
                    module.__dict__["forward"] = _forward(module)  # found before the class's
            if _is_plain(self._net.head):
                self._head = _head(self._net.head.detach(), self._rows)
            yield
        finally:
            self._head = None
            for module in linears:
                module.__dict__.pop("forward", None)

    def logits(self, hidden: Tensor, bias: Tensor | None) -> Tensor:
        """Rows (R, C) times the head, float32: (R, V)."""
        if self._head is None:
            return F.linear(hidden, self._net.head.float(), bias)
        return self._head(hidden, bias)


def _is_plain(weight: Tensor) -> bool:
    return weight.dtype == torch.float32 and weight.device.type == "cpu"


def _forward(module: nn.Linear) -> Callable[[Tensor], Tensor]:
    bias = None if module.bias is None else module.bias.detach()
    weight = module.weight.detach().t().contiguous()  # (in, out)

    def forward(x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        product = flat @ weight if bias is None else torch.addmm(bias, flat, weight)
        return product.view(*x.shape[:-1], -1)

    return forward


def _head(weight: Tensor, rows: int) -> Callable[[Tensor, Tensor | None], Tensor]:
    names = ("_reorder_linear_weight", "_linear_pointwise")
    operators = torch.ops.mkldnn
    if (
        weight.numel() < _LARGE_HEAD
        or not torch.backends.mkldnn.is_available()
        or not all(hasattr(operators, name) for name in names)
    ):
        turned = weight.t().contiguous()  # (C, V)
        return lambda x, bias: x @ turned if bias is None else torch.addmm(bias, x, turned)
    blocked: Tensor = operators._reorder_linear_weight(weight, rows)

    def product(x: Tensor, bias: Tensor | None) -> Tensor:
        found: Tensor = operators._linear_pointwise(x, blocked, bias, "none", [], "")
        return found

    return product
