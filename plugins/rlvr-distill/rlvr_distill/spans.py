"""What each token counts, for all data of an optimiser update at once: exact under micro-batches.

The factors join the data as annotations, so every later split of the update sums to the same loss.

Shapes: T tokens of a datum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from rlvr import Datum, TopK

SPAN = "span"
"""Annotation: 0 no span, 1 reasoning, 2 action."""
REASONING, ACTION = 1, 2
TYPES: Mapping[int, str] = {REASONING: "reasoning", ACTION: "action"}
GROUP, CHUNK_LOGPROB = "align/group", "align/logprob"
"""Annotations of a teacher with another tokenizer: number of a token's group, -1 where it is
compared by itself; and the teacher's logprob of the group's text, at its first token."""
FACTOR, SHARE = "distill/weight", "distill/share"
"""Annotations made here: what `Datum.weights` are multiplied by; and the whole update's weight
over that of the token's type, which makes sums into means of the type."""

Array = NDArray[np.float64]


def span_types(datum: Datum) -> NDArray[np.int64]:
    """Type (T,) of each supervised token; 0 elsewhere. Without the annotation all are actions."""
    given = datum.annotations.get(SPAN)
    types = np.full(len(datum.tokens), ACTION) if given is None else np.asarray(given).astype(int)
    return np.where(datum.mask, types, 0)


def plain_factors(datum: Datum, weights: Mapping[int, float]) -> Array:
    """Factors (T,) by type alone; 0 where a token is of none, or the teacher said nothing of it."""
    types = span_types(datum)
    factors = np.zeros(len(types))
    for kind, weight in weights.items():
        factors[types == kind] = weight
    factors[~is_known(datum)] = 0.0
    return _by_group(datum, factors)


def is_known(datum: Datum) -> NDArray[np.bool_]:
    """Whether (T,) there is something to learn of a token: a distribution, or its group's."""
    known = datum.mask.copy()
    for told in datum.distributions.values():
        if isinstance(told, TopK):
            known[datum.mask] &= (told.ids >= 0).any(axis=1)
    return known | in_group(datum)


def in_group(datum: Datum) -> NDArray[np.bool_]:
    """Whether (T,) a token is compared together with others of its group only."""
    if GROUP not in datum.annotations or CHUNK_LOGPROB not in datum.annotations:
        return np.zeros(len(datum.tokens), bool)
    return datum.mask & (np.asarray(datum.annotations[GROUP]) >= 0)


def weighed(
    data: Sequence[Datum],
    weights: Mapping[int, float],
    reduction: str,
    token_weights: Sequence[Array] | None = None,
    after: Mapping[int, float] | None = None,
) -> list[Datum]:
    """
    The data of an update with `FACTOR` and `SHARE`.

    Args:
        data: All of them, with their weights w (T,), which sum to W.
        weights: By type.
        reduction: "token": factors with mean 1, weighted by w, so the loss is a weighted mean;
            "span": the mean of each type, times its weight over the sum of those that occur;
            "paper": the factors that make w the bare weight of the type, so the loss is a sum.
        token_weights: One (T,) a datum on top, brought to mean 1 within each type.
        after: By type, that the result is multiplied by; not that of groups.
    """
    w = [np.asarray(d.weights, np.float64) for d in data]
    types = [span_types(d) for d in data]
    factors = [plain_factors(d, weights) for d in data]
    if token_weights is not None:
        factors = _times(data, factors, token_weights, w, types)
    total = sum(float(x.sum()) for x in w)
    per_type = {
        kind: sum(
            float((x * f)[t == kind].sum()) for x, f, t in zip(w, factors, types, strict=True)
        )
        for kind in TYPES
    }
    scales = _scales(reduction, per_type, weights, total)
    made = []
    shares = _shares(data, w, types, total)
    for datum, x, f, t, share in zip(data, w, factors, types, shares, strict=True):
        if reduction == "paper":
            final = np.divide(f, x, out=np.zeros_like(f), where=x > 0)
        else:
            final = f * _of_types(t, scales)
        if after is not None:
            final = final * np.where(in_group(datum), 1.0, _of_types(t, after))
        made.append(
            attrs.evolve(
                datum,
                annotations={
                    **datum.annotations,
                    FACTOR: final.astype(np.float32),
                    SHARE: share.astype(np.float32),
                },
            )
        )
    return made


def _of_types(types: NDArray[np.int64], values: Mapping[int, float]) -> Array:
    """The value of each token's type, (T,); 0 where it has none."""
    return np.array([0.0, values[REASONING], values[ACTION]])[types]


def _scales(
    reduction: str, per_type: Mapping[int, float], weights: Mapping[int, float], total: float
) -> dict[int, float]:
    """What the factors of each type are multiplied by."""
    if reduction == "span":
        present = sum(weights[kind] for kind, sum_ in per_type.items() if sum_ > 0)
        return {
            kind: total * weights[kind] / (present * sum_) if sum_ > 0 else 0.0
            for kind, sum_ in per_type.items()
        }
    whole = sum(per_type.values())
    return dict.fromkeys(per_type, total / whole if whole > 0 else 0.0)


def _times(
    data: Sequence[Datum],
    factors: Sequence[Array],
    token_weights: Sequence[Array],
    w: Sequence[Array],
    types: Sequence[NDArray[np.int64]],
) -> list[Array]:
    """Factors times token weights over their mean; a group's, of which none is known, times 1."""
    means, alone = {}, [~in_group(d) for d in data]
    for kind in TYPES:
        at = [(t == kind) & (f > 0) & a for t, f, a in zip(types, factors, alone, strict=True)]
        weight = sum(float(x[here].sum()) for x, here in zip(w, at, strict=True))
        sum_ = sum(
            float((x * y)[here].sum()) for x, y, here in zip(w, token_weights, at, strict=True)
        )
        means[kind] = sum_ / weight if weight > 0 and sum_ > 0 else 1.0
    return [
        f * np.where(a, y * _of_types(t, {kind: 1 / mean for kind, mean in means.items()}), 1.0)
        for f, y, t, a in zip(factors, token_weights, types, alone, strict=True)
    ]


def _shares(
    data: Sequence[Datum],
    w: Sequence[Array],
    types: Sequence[NDArray[np.int64]],
    total: float,
) -> list[Array]:
    """W over the weight of the type's tokens that have a distribution, (T,) a datum."""
    alone = [is_known(d) & ~in_group(d) for d in data]
    found = []
    sums = {
        kind: sum(float(x[(t == kind) & a].sum()) for x, t, a in zip(w, types, alone, strict=True))
        for kind in TYPES
    }
    for t, a in zip(types, alone, strict=True):
        share = np.zeros(len(t))
        for kind, sum_ in sums.items():
            share[(t == kind) & a] = total / sum_ if sum_ > 0 else 0.0
        found.append(share)
    return found


def _by_group(datum: Datum, factors: Array) -> Array:
    """Factors with those of a group's tokens divided by their number: a group counts as one."""
    inside = in_group(datum)
    if not inside.any():
        return factors
    groups = np.asarray(datum.annotations[GROUP])[inside].astype(int)
    _, which, counts = np.unique(groups, return_inverse=True, return_counts=True)
    factors = factors.copy()
    factors[inside] /= counts[which]
    return factors
