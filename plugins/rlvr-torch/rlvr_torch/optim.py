"""AdamW, the learning rate over time, and the norm of the gradient."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from attrs import evolve, fields, frozen
from torch import nn

from rlvr.schedule import learning_rate


@frozen(kw_only=True)
class OptimSettings:
    """What the optimiser needs of the run's `train.*` options, and `torch.weight_decay`."""

    lr: float = 1e-5
    warmup: int = 0
    decay: str = "constant"
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    passes: int = 1
    minibatches: int = 1

    @classmethod
    def of(cls, train: Any, weight_decay: float = 0.0) -> OptimSettings:
        """From the `TrainOptions` of a `BuildContext`, or the defaults where it has none."""
        if train is None:
            return cls(weight_decay=weight_decay)
        names = [field.name for field in fields(cls) if field.name != "weight_decay"]
        return cls(weight_decay=weight_decay, **{name: getattr(train, name) for name in names})


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


def build_adamw(
    model: nn.Module, settings: OptimSettings, betas: tuple[float, float]
) -> torch.optim.AdamW:
    """AdamW over what is trained; weight decay is for matrices, not norms, biases, embeddings."""
    embeddings = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for value in model.parameters():
        if value.requires_grad:
            is_matrix = value.ndim >= 2 and id(value) not in embeddings
            (decayed if is_matrix else plain).append(value)
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    # One pass over memory instead of ten; the arithmetic is the same.
    return AdamW(groups, lr=settings.lr, betas=betas, eps=1e-8, fused=True)


def add_critic(optimizer: torch.optim.AdamW, critic: nn.Module, lr: float) -> None:
    """Train a value head too; its rate follows the same schedule, from a peak of its own."""
    optimizer.add_param_group(
        {"params": list(critic.parameters()), "weight_decay": 0.0, "peak_lr": lr}
    )


def set_rates(
    optimizer: torch.optim.AdamW, update: int, total: int, settings: OptimSettings
) -> float:
    """Give all groups the rate of update number `update`; the model's is returned."""
    rate = learning_rate(update, total, settings)
    for group in optimizer.param_groups:
        peak = group.get("peak_lr")
        own = settings if peak is None else evolve(settings, lr=peak)
        group["lr"] = learning_rate(update, total, own)
    return rate


def clip_gradients(weights: Iterable[nn.Parameter], limit: float) -> float:
    """Scale the gradients to a global norm of at most `limit` (0: none); the norm before."""
    grads: Sequence[torch.Tensor] = [v.grad for v in weights if v.grad is not None]
    norm = float(nn.utils.get_total_norm(grads))
    if limit and math.isfinite(norm) and norm > limit:
        for grad in grads:
            grad.mul_(limit / (norm + 1e-6))
    return norm
