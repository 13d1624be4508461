"""Storage of trained weights if products are computed in bfloat16.

The net's own parameters are the masters: float32; they are what is optimised, saved and hashed.
Products read bfloat16 copies of them, which are made once an update and not at each use.

Source: Micikevicius et al. 2018, "Mixed Precision Training" (arXiv:1710.03740), section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlvr_torch.models.hf.experts import is_experts
from rlvr_torch.models.interface import Net


class WeightStorage:
    """
    The plain version: there are no copies, and autocast casts the weights at each use.

    Attributes:
        copies: The copy of each weight that has one.
    """

    def __init__(self, net: Net, dtype: torch.dtype) -> None:
        self.copies: dict[nn.Parameter, Tensor] = {}

    def refresh(self) -> None:
        """Make the copies those of the weights. Call it whenever weights have changed."""
        with torch.no_grad():
            for weight, copy in self.copies.items():
                if weight.requires_grad:
                    copy.copy_(weight)


class CopiedWeights(WeightStorage):
    """
    Linear layers multiply by copies in `dtype` inside autocast, and by their weights outside.

    Results and gradients are autocast's own, to the bit: it rounds the same weights. The output
    head has no copy here, nor have embeddings, norms, and weights that are stored in `dtype`
    already (the frozen ones under LoRA). Experts of a mixture have some (`hf.experts`). A copy is
    always in the same memory, so CUDA graphs may read it. A gradient that reaches a copy is added
    to its weight's, float32.

    Args:
        net: Its layers get another `forward`.
        dtype: Of the products; with float32 nothing is copied.
    """

    def __init__(self, net: Net, dtype: torch.dtype) -> None:
        super().__init__(net, dtype)
        for module in net.module.modules() if dtype != torch.float32 else ():
            product = _product_of(module)
            if is_experts(module):
                own = dict(module.named_parameters(recurse=False))
                masters = {n: v for n, v in own.items() if v.dtype == torch.float32}
                copies = {n: self._copied(v, dtype) for n, v in masters.items()}
                cast("Any", module).compute_weights = copies
            weight: Any = module.weight if product else None
            if product is None or weight is net.head or weight.dtype != torch.float32:
                continue
            bias: Any = module.bias
            copy = self._copied(weight, dtype), None if bias is None else self._copied(bias, dtype)
            cast("Any", module).compute_weights = copy
            cast("Any", module).forward = MethodType(product, module)

    def _copied(self, weight: nn.Parameter, dtype: torch.dtype) -> Tensor:
        if weight not in self.copies:  # two layers may share one
            copy = weight.detach().to(dtype).requires_grad_(weight.requires_grad)
            if weight.requires_grad:
                copy.register_post_accumulate_grad_hook(_adds_to(weight))
            self.copies[weight] = copy
        return self.copies[weight]


def store_lower(net: Net, dtype: torch.dtype) -> None:
    """Store the linear layers of a net that is not trained in the type of its products."""
    for module in net.module.modules():
        weight: Any = module.weight if _product_of(module) else None
        is_own = weight is not None and weight is not net.head and weight.dtype == torch.float32
        if is_own or is_experts(module):
            module.to(dtype)


def _adds_to(weight: nn.Parameter) -> Callable[[Tensor], None]:
    """Add a copy's gradient to the weight's, and drop it."""

    def add(copy: Tensor) -> None:
        found = cast("Tensor", copy.grad)
        copy.grad = None
        if weight.grad is None:
            weight.grad = found.to(weight.dtype)
        else:
            weight.grad.add_(found)

    return add


def _linear(module: Any, x: Tensor) -> Tensor:
    is_lower = torch.is_autocast_enabled(x.device.type)
    weight, bias = module.compute_weights if is_lower else (module.weight, module.bias)
    return F.linear(x, weight, bias)


def _conv1d(module: Any, x: Tensor) -> Tensor:
    """The linear layer of transformers' GPT-2: weights (I, O)."""
    is_lower = torch.is_autocast_enabled(x.device.type)
    weight, bias = module.compute_weights if is_lower else (module.weight, module.bias)
    found = torch.addmm(bias, x.view(-1, x.shape[-1]), weight)
    return found.view(*x.shape[:-1], module.nf)


def _product_of(module: nn.Module) -> Callable[[Any, Tensor], Tensor] | None:
    """The product of a layer that is one and nothing else; peft has another `Linear`."""
    if type(module) is nn.Linear:
        return _linear
    return _conv1d if type(module).__name__ == "Conv1D" else None
