"""AdamW, the learning rate over time, and the norm of the gradient."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from attrs import evolve, fields, frozen
from torch import nn

_LINE_FROM = 0.9  # share of the decay at which "cosine-linear" leaves its cosine


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
    return torch.optim.AdamW(groups, lr=settings.lr, betas=betas, eps=1e-8, fused=True)


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


def learning_rate(update: int, total: int, settings: OptimSettings) -> float:
    """
    The rate of update number `update` (from 0) of `total`.

    Linear warm-up: update n of w takes (n + 1) / w of the peak. Then constant, or from the peak
    towards 0 along a line or half a cosine, reaching 0 right after the last update;
    "cosine-linear" goes along half a cosine to a tenth of the peak, and along a line to 0 in the
    last tenth of what warm-up leaves. A `total` of 0 (unknown) never decays.
    """
    if update < settings.warmup:
        return settings.lr * (update + 1) / settings.warmup
    span = total - settings.warmup
    if settings.decay == "constant" or span <= 0:
        return settings.lr
    progress = min(1.0, (update - settings.warmup) / span)
    if settings.decay == "linear":
        return settings.lr * (1.0 - progress)
    if settings.decay == "cosine-linear":
        if progress >= _LINE_FROM:  # (1 - progress) / (1 - 0.9) of a tenth
            return settings.lr * (1.0 - progress)
        wave = 0.5 * (1.0 + math.cos(math.pi * progress / _LINE_FROM))
        return settings.lr * (0.1 + 0.9 * wave)
    return settings.lr * 0.5 * (1.0 + math.cos(math.pi * progress))


def clip_gradients(weights: Iterable[nn.Parameter], limit: float) -> float:
    """Scale the gradients to a global norm of at most `limit` (0: none); the norm before."""
    grads: Sequence[torch.Tensor] = [v.grad for v in weights if v.grad is not None]
    norm = float(nn.utils.get_total_norm(grads))
    if limit and math.isfinite(norm) and norm > limit:
        for grad in grads:
            grad.mul_(limit / (norm + 1e-6))
    return norm
