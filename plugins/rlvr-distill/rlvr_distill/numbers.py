"""Metrics of distillation: sums that add up over micro-batches, and are means by span type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from rlvr_distill import spans
from rlvr_distill.config import DistillConfig
from rlvr_distill.distributions.functional import Outcome
from rlvr_distill.distributions.gathered import Gathered

_BY_SPAN = ("kl", "accuracy", "entropy", "teacher_entropy", "overlap")


def metric_names(config: DistillConfig) -> tuple[str, ...]:
    """What is read off the distributions besides the divergence."""
    difficulty = ("agreement",) if config.weighting == "difficulty" else ()
    return (*(_BY_SPAN if config.span_metrics else ()), *difficulty)


def by_type(
    some: Gathered, found: Outcome, weights: Mapping[int, float], *, is_difficulty: bool
) -> dict[str, Tensor]:
    """
    Sums by span type of `w * SHARE * number`: means over the update's tokens of the type.

    Types without a weight were not computed, and are left out; so is reasoning where the data do
    not tell spans apart. Without `SHARE` the sums are of `w * number`. `share/...` are the weights
    of the tokens that the means are over: not of those that a teacher said nothing of, nor of those
    that are compared as a group.
    """
    has_spans = any(spans.SPAN in d.annotations for d in some.data)
    kinds = [k for k, w in weights.items() if w > 0 and (has_spans or k == spans.ACTION)]
    columns = {"distill": found.values, **found.seen}
    if is_difficulty:
        columns["difficulty"] = 2 - columns.pop("agreement")
    w = some.column([d.weights for d in some.data]).to(found.values)
    share = some.column([_share(d) for d in some.data]).to(found.values)
    types = some.column([spans.span_types(d) for d in some.data])
    sums: dict[str, Tensor] = {}
    for kind in kinds:
        at = (types == kind).to(w)
        name = spans.TYPES[kind]
        sums[f"share/{name}"] = (w * at * (share > 0)).sum()  # of those that the means are over
        for metric, values in columns.items():
            sums[f"{metric}/{name}"] = (w * share * at * values.to(w)).sum()
    return sums


def _share(datum: spans.Datum) -> np.ndarray:
    if spans.SHARE in datum.annotations:
        return np.asarray(datum.annotations[spans.SHARE])
    return spans.stands_alone(datum).astype(np.float32)


def added(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Sums of the parts' sums, by name."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {
        name: torch.stack([part[name] for part in parts if name in part]).sum() for name in names
    }


def as_metrics(values: Mapping[str, Tensor]) -> dict[str, float]:
    """Plain numbers of scalar tensors, with a single transfer from the device."""
    numbers: list[float] = torch.stack([v.detach() for v in values.values()]).tolist()
    return dict(zip(values, numbers, strict=True))
