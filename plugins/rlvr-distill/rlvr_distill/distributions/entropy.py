"""How unsure a teacher is at each supervised token of a datum: for confidence and temperature.

Shapes: n supervised tokens, k tokens told, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rlvr import Distribution, States
from rlvr_distill.distributions.sides import Projection
from rlvr_distill.divergences.pair import FLOOR

Array = NDArray[np.float64]


def entropies(told: Distribution, head: Any, temperature: float, block: int) -> Array:
    """
    Entropies (n,) in nats; of few tokens a lower bound, the rest counting as one token.

    Args:
        told: A teacher's.
        head: Of a teacher that gives states.
        temperature: That its logits are divided by; a `TopK` is at it already.
        block: Rows whose logits exist at one time.
    """
    if isinstance(told, States):
        return _of_states(told, head, temperature, block)
    is_there = told.ids >= 0
    log_p = np.where(is_there, np.maximum(told.logprobs, FLOOR), 0.0).astype(np.float64)
    p = np.where(is_there, np.exp(log_p), 0.0)
    left = np.clip(1 - p.sum(axis=1), 1e-12, 1.0)
    rest = 0.0 if told.is_whole else -left * np.log(left)
    entropy: Array = -(p * log_p).sum(axis=1) + rest
    return entropy


def _of_states(told: States, head: Any, temperature: float, block: int) -> Array:
    states = torch.from_numpy(np.array(told.states)).to(head.weights.device)
    side, parts = Projection.of(states, head), []
    with torch.no_grad():
        for first in range(0, len(states), block):
            log_p = torch.log_softmax(
                side.logits(slice(first, first + block)) / temperature, dim=1
            ).clamp_(min=-1e4)
            parts.append(-(log_p.exp() * log_p).sum(dim=1).double().cpu().numpy())
    return np.concatenate(parts) if parts else np.zeros(0)


def confidence(entropy: Array, vocabulary: int, power: float) -> Array:
    """`(1 - H / log V)^power`, (n,)."""
    certain = 1 - entropy / np.log(max(vocabulary, 2))
    weights: Array = np.clip(certain, 0.0, 1.0) ** power
    return weights


def temperatures(
    entropy: Array, mean: float, start: float, power: float, low: float, high: float
) -> Array:
    """`start (1 + power (H / mean - 1))` in bounds, (n,): hotter where the teacher is unsure."""
    excess = entropy / mean - 1 if mean > 0 else np.zeros_like(entropy)
    found: Array = np.clip(start * (1 + power * excess), low, high)
    return found
