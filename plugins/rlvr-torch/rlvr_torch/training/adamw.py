"""AdamW in four kinds: fused, as a loop, with moments of 8 bits, and on the CPU beside a GPU."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from rlvr_torch.models.hf.load import require
from rlvr_torch.runtime.device import on_host


def make_adamw(
    kind: str, groups: Iterable[dict[str, Any]], *, lr: float, betas: tuple[float, float]
) -> torch.optim.Optimizer:
    """
    An optimiser of a kind (`torch.optimizer`) over groups of weights.

    Raises:
        PrerequisiteError: bitsandbytes is not installed, for `adamw-8bit`.
    """
    settings: dict[str, Any] = {"lr": lr, "betas": betas, "eps": 1e-8}
    if kind == "adamw-8bit":
        library = require("bitsandbytes", "torch.optimizer=adamw-8bit was asked for", "8bit")
        found: torch.optim.Optimizer = library.optim.AdamW8bit(groups, **settings)
        return found
    # Fused: one pass over memory instead of ten; the arithmetic is the same.
    made = OffloadedAdamW if kind == "adamw-offload" else AdamW
    return made(groups, fused=kind != "adamw-unfused", **settings)


class AdamW(torch.optim.AdamW):
    """
    PyTorch's, without the wrappers that tell its compiler to keep out.

    They import the compiler, which nothing here uses and which takes longer than torch itself.
    """

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    load_state_dict = inspect.unwrap(torch.optim.AdamW.load_state_dict)
    state_dict = inspect.unwrap(torch.optim.AdamW.state_dict)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)


class OffloadedAdamW(AdamW):
    """
    AdamW that keeps moments in the CPU's memory and computes there; bits as AdamW on a CPU.

    The device holds weights and gradients alone: 8 bytes a weight, not 16. It works on copies of
    the weights, so make a new one when something else has changed them.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], **settings: Any) -> None:
        self._pairs: list[tuple[Tensor, nn.Parameter]] = []
        super().__init__(groups, **settings)

    def add_param_group(self, group: dict[str, Any]) -> None:
        copies = [nn.Parameter(on_host(weight)) for weight in group["params"]]
        self._pairs += zip(group["params"], copies, strict=True)
        super().add_param_group({**group, "params": copies})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for weight, copy in self._pairs:
            copy.grad = None if weight.grad is None else on_host(weight.grad)
        found = super().step(closure)
        for weight, copy in self._pairs:
            weight.copy_(copy)
            copy.grad = None
        return found

    def zero_grad(self, set_to_none: bool = True) -> None:
        for weight, _ in self._pairs:
            weight.grad = None
