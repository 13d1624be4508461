"""Adam with decoupled weight decay, its settings given anew at each step, as the service has it.

Sources: Kingma & Ba 2015 (arXiv:1412.6980); Loshchilov & Hutter 2019 (arXiv:1711.05101).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from attrs import define, field
from tinker.types import AdamParams
from torch import Tensor

from rlvr_tinker_server.refusal import Refusal


@define
class Adam:
    """Averages of gradients and of their squares, by the weights' names, and the steps taken."""

    means: dict[str, Tensor] = field(factory=dict)
    squares: dict[str, Tensor] = field(factory=dict)
    steps: int = 0

    def step(self, weights: Mapping[str, Tensor], params: AdamParams) -> float:
        """
        Move the weights by their gradients (none counts as zero).

        Returns:
            The norm of all gradients together, before clipping.

        Raises:
            Refusal: A setting is out of range, or a gradient is not finite; nothing has moved.
        """
        check_params(params)
        grads = {
            name: torch.zeros_like(weight) if weight.grad is None else weight.grad
            for name, weight in weights.items()
        }
        norm = float(torch.stack([grad.norm() for grad in grads.values()]).norm())
        if not math.isfinite(norm):
            raise Refusal(f"the norm of the gradient is {norm}: the step was not taken")
        if 0 < params.grad_clip_norm < norm:
            for grad in grads.values():
                grad.mul_(params.grad_clip_norm / norm)
        self.steps += 1
        rate = params.learning_rate / (1 - params.beta1**self.steps)
        spread = math.sqrt(1 - params.beta2**self.steps)
        with torch.no_grad():
            for name, weight in weights.items():
                mean = self.means.setdefault(name, torch.zeros_like(weight))
                square = self.squares.setdefault(name, torch.zeros_like(weight))
                mean.lerp_(grads[name], 1 - params.beta1)
                square.mul_(params.beta2).addcmul_(grads[name], grads[name], value=1 - params.beta2)
                weight.mul_(1 - params.learning_rate * params.weight_decay)
                weight.addcdiv_(mean, (square.sqrt() / spread).add_(params.eps), value=-rate)
        return norm


def check_params(params: AdamParams) -> None:
    """Refuse (`Refusal`) a setting that is not finite or out of its range."""
    for name in ("learning_rate", "beta1", "beta2", "eps", "weight_decay", "grad_clip_norm"):
        value, end = getattr(params, name), 1.0 if name.startswith("beta") else math.inf
        if not 0 <= value < end:
            upper = "finite" if end == math.inf else f"below {end:g}"
            raise Refusal(f"{name}={value} was asked for; it must be 0 or more, and {upper}")
