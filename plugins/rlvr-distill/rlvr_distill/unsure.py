"""
Confidence weights and temperatures by the teacher's entropy, for a whole update at once.

Shapes: T tokens of a datum, n of them supervised, k tokens told, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import torch
from numpy.typing import NDArray

from rlvr import Datum, Distribution, HiddenStates
from rlvr_distill import spans
from rlvr_distill.config import DistillConfig
from rlvr_distill.distributions.sides import HeadLogits
from rlvr_distill.divergences.pair import FLOOR

HEAT = "distill/temperature"
"""Annotation made here: temperature (T,) of each token, where it is adapted."""
_UNKNOWN = 50_000
"""Tokens of a vocabulary whose size nothing says."""

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
    if isinstance(told, HiddenStates):
        return _of_states(told, head, temperature, block)
    is_there = told.ids >= 0
    log_p = np.where(is_there, np.maximum(told.logprobs, FLOOR), 0.0).astype(np.float64)
    p = np.where(is_there, np.exp(log_p), 0.0)
    left = np.clip(1 - p.sum(axis=1), 1e-12, 1.0)
    rest = 0.0 if told.is_whole else -left * np.log(left)
    return -(p * log_p).sum(axis=1) + rest


def _of_states(told: HiddenStates, head: Any, temperature: float, block: int) -> Array:
    states = torch.from_numpy(np.array(told.states)).to(head.weights.device)
    side, parts = HeadLogits.of(states, head), [np.zeros(0)]
    with torch.no_grad():
        for first in range(0, len(states), block):
            logits = side.at(slice(first, first + block)) / temperature
            log_p = torch.log_softmax(logits, dim=1).clamp_(min=FLOOR)
            parts.append(-(log_p.exp() * log_p).sum(dim=1).double().cpu().numpy())
    return np.concatenate(parts)


def looked_at(
    data: Sequence[Datum], name: str, config: DistillConfig, head: Any, vocabulary: int
) -> tuple[list[Datum], list[Array] | None]:
    """
    The data, with `HEAT` where it is adapted; token weights (T,), where confidence counts.

    The teacher's entropies H are computed where an option asks for them.

    Args:
        data: Of an update.
        name: Annotation of the teacher.
        config: Says what is wanted.
        head: Of a teacher that gives states.
        vocabulary: Tokens of the teacher; 0: unknown.
    """
    made = list(data)
    is_weighing = config.weighting == "confidence"
    if not is_weighing and config.adapt_temperature == 0:
        return made, None
    per_datum = [
        entropies(d.distributions[name], head, config.temperature, config.chunk_rows) for d in data
    ]
    if config.adapt_temperature > 0:
        made = _heated(made, per_datum, config)
    if not is_weighing:
        return made, None
    size = vocabulary or (len(head.weights) if head is not None else _UNKNOWN)
    weights = []
    for datum, entropy in zip(data, per_datum, strict=True):
        certain = np.clip(1 - entropy / np.log(max(size, 2)), 0.0, 1.0)  # (n,) 1 - H / log V
        weights.append(_spread(datum, certain**config.confidence_power))
    return made, weights


def _heated(
    data: Sequence[Datum], per_datum: Sequence[Array], config: DistillConfig
) -> list[Datum]:
    """With temperatures `T (1 + power (H / mean H - 1))`, in bounds: hotter where H is high."""
    start, power = config.temperature, config.adapt_temperature
    weights = np.concatenate([d.weights[d.mask] * spans.is_known(d)[d.mask] for d in data])
    total = float((weights * np.concatenate(per_datum)).sum())
    mean = total / float(weights.sum()) if weights.sum() > 0 else 0.0
    made = []
    for datum, entropy in zip(data, per_datum, strict=True):
        excess = entropy / mean - 1 if mean > 0 else np.zeros_like(entropy)
        bounds = config.min_temperature, config.max_temperature
        heat = _spread(datum, np.clip(start * (1 + power * excess), *bounds), empty=start)
        annotations = {**datum.annotations, HEAT: heat.astype(np.float32)}
        made.append(attrs.evolve(datum, annotations=annotations))
    return made


def _spread(datum: Datum, values: Array, empty: float = 1.0) -> Array:
    """Values (n,) of the supervised tokens at their places, (T,)."""
    spread = np.full(len(datum.tokens), empty)
    spread[datum.mask] = values
    return spread
