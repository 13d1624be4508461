"""What a teacher's entropy decides, for all data of an update at once: confidence, temperature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from rlvr import Datum
from rlvr_distill import spans
from rlvr_distill.config import DistillConfig
from rlvr_distill.distributions.entropy import Array, confidence, entropies, temperatures

HEAT = "distill/temperature"
"""Annotation made here: temperature (T,) of each token, where it is adapted."""


class Unsure:
    """Looks at the teacher's entropies where an option asks for them."""

    def __init__(self, config: DistillConfig, head: Any, vocabulary: int) -> None:
        self._config, self._head, self._vocabulary = config, head, vocabulary

    def looked_at(self, data: Sequence[Datum], name: str) -> tuple[list[Datum], list[Array] | None]:
        """The data, with `HEAT` where adapted; token weights (T,), where confidence counts."""
        config = self._config
        if config.weighting != "confidence" and config.adapt_temperature == 0:
            return list(data), None
        per_datum = [
            entropies(d.distributions[name], self._head, config.temperature, config.chunk_rows)
            for d in data
        ]
        made = list(data)
        if config.adapt_temperature > 0:
            made = self._heated(made, per_datum)
        if config.weighting != "confidence":
            return made, None
        size = self._vocabulary or self._guess()
        return made, [
            _spread(d, confidence(e, size, config.confidence_power))
            for d, e in zip(data, per_datum, strict=True)
        ]

    def _heated(self, data: Sequence[Datum], per_datum: Sequence[Array]) -> list[Datum]:
        config = self._config
        weights = np.concatenate([d.weights[d.mask] * spans.is_known(d)[d.mask] for d in data])
        sum_ = float((weights * np.concatenate(per_datum)).sum())
        mean = sum_ / float(weights.sum()) if weights.sum() > 0 else 0.0
        return [
            attrs.evolve(
                d,
                annotations={
                    **d.annotations,
                    HEAT: _spread(
                        d,
                        temperatures(
                            e,
                            mean,
                            config.temperature,
                            config.adapt_temperature,
                            config.min_temperature,
                            config.max_temperature,
                        ),
                        empty=config.temperature,
                    ).astype(np.float32),
                },
            )
            for d, e in zip(data, per_datum, strict=True)
        ]

    def _guess(self) -> int:
        return len(self._head.weights) if self._head is not None else 50_000


def _spread(datum: Datum, values: Array, empty: float = 1.0) -> Array:
    """Values (n,) of the supervised tokens at their places, (T,)."""
    spread = np.full(len(datum.tokens), empty)
    spread[datum.mask] = values
    return spread
