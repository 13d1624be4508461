"""AdamW, the learning rate over time, and the norm of the gradient."""

from __future__ import annotations

import math
from typing import Any

import torch
from attrs import fields, frozen
from torch import nn


@frozen(kw_only=True)
class OptimSettings:
    """What the optimiser needs of the run's `train.*` options (same names, same defaults)."""

    lr: float = 1e-5
    warmup: int = 0
    decay: str = "constant"
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    microbatch_tokens: int = 8192
    passes: int = 1
    minibatches: int = 1

    @classmethod
    def of(cls, train: Any) -> OptimSettings:
        """From the `TrainOptions` of a `BuildContext`, or the defaults where it has none."""
        if train is None:
            return cls()
        return cls(**{field.name: getattr(train, field.name) for field in fields(cls)})


def build_adamw(
    model: nn.Module, settings: OptimSettings, betas: tuple[float, float]
) -> torch.optim.AdamW:
    """AdamW; weight decay is for the blocks' matrices, not for norms, biases, embeddings."""
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, value in model.named_parameters():
        is_embedding = name.startswith(("wte.", "wpe."))
        (decayed if value.ndim >= 2 and not is_embedding else plain).append(value)
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.lr, betas=betas, eps=1e-8)


def learning_rate(update: int, total: int, settings: OptimSettings) -> float:
    """
    The rate of update number `update` (from 0) of `total`.

    Linear warm-up: update n of w takes (n + 1) / w of the peak. Then constant, or from the peak
    towards 0 along a line or half a cosine, reaching 0 right after the last update. A `total` of 0
    (unknown) never decays.
    """
    if update < settings.warmup:
        return settings.lr * (update + 1) / settings.warmup
    span = total - settings.warmup
    if settings.decay == "constant" or span <= 0:
        return settings.lr
    progress = min(1.0, (update - settings.warmup) / span)
    if settings.decay == "linear":
        return settings.lr * (1.0 - progress)
    return settings.lr * 0.5 * (1.0 + math.cos(math.pi * progress))


def clip_gradients(model: nn.Module, limit: float) -> float:
    """Scale the gradients to a global norm of at most `limit` (0: none); the norm before."""
    return float(nn.utils.clip_grad_norm_(model.parameters(), limit or math.inf))
