"""Experts of a mixture in autocast's type, which autocast itself passes over.

transformers multiplies all experts at once (`grouped_mm`), in the type of their weights: with
float32 masters in float32, whatever `torch.dtype` says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn


def is_experts(module: nn.Module) -> bool:
    """Whether it holds the weights of all experts of a layer."""
    return hasattr(type(module), "_apply_gate")  # transformers' `use_experts_implementation`


def lower_experts(model: nn.Module) -> None:
    """From now on they are multiplied in autocast's type, inside it."""
    for module in model.modules():
        if is_experts(module):
            module.forward = partial(_uncompiled(), module, module.forward)


@cache  # one for all layers, so that they share what is compiled
def _uncompiled() -> Callable[..., Any]:
    return torch.compiler.disable(_lowered)  # no decorator: it imports the compiler


def _lowered(module: Any, forward: Callable[..., Any], x: Tensor, *args: Any, **more: Any) -> Any:
    weights = {n: v for n, v in module.named_parameters(recurse=False) if v.dtype == torch.float32}
    device = x.device.type
    if not weights or not torch.is_autocast_enabled(device):
        return forward(x, *args, **more)
    dtype = torch.get_autocast_dtype(device)
    # `CopiedWeights` has made copies; else they are cast at each use.
    lower = getattr(module, "compute_weights", None) or {n: v.to(dtype) for n, v in weights.items()}
    # Not `functional_call`, which changes the module while other threads read it.
    likeness = object.__new__(type(module))
    vars(likeness).update(vars(module), _parameters={**module._parameters, **lower})
    return type(module).forward(likeness, x, *args, **more)
