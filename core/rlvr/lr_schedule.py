"""The learning rate over a run: the same for every backend."""

from __future__ import annotations

import math
from typing import Protocol

__all__ = ["learning_rate"]

_LINE_FROM = 0.9
"""Share of the decay at which "cosine-linear" leaves its cosine."""


class Rates(Protocol):
    """The `train.*` options of a schedule."""

    @property
    def lr(self) -> float:
        """The peak."""

    @property
    def warmup(self) -> int:
        """Updates of linear warm-up."""

    @property
    def decay(self) -> str:
        """The schedule after warm-up: constant, linear, cosine, cosine-linear."""


def learning_rate(update: int, total: int, settings: Rates) -> float:
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
