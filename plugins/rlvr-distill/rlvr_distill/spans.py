"""Weight of each token, for a whole optimiser update at once: exact under micro-batches.

The factors join the data as annotations, so every later split of the update sums to the same loss.

Shapes: T tokens of a datum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import ArrayLike, NDArray

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


def stands_alone(datum: Datum) -> NDArray[np.bool_]:
    """Whether (T,) a token has a distribution of its own to be compared with."""
    return is_known(datum) & ~in_group(datum)


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
    if not data:
        return []
    w, types = _joined(d.weights for d in data), _joined(map(span_types, data)).astype(int)
    factors = _joined(plain_factors(d, weights) for d in data)
    alone = ~_joined(map(in_group, data)).astype(bool)
    total = float(w.sum())
    if token_weights is not None:  # of a group none is known: it counts 1
        factors = factors * np.where(
            alone, _levelled(_joined(token_weights), w, factors, types, alone), 1
        )
    per_type = _sums(types, w * factors)
    if reduction == "paper":
        final = np.divide(factors, w, out=np.zeros_like(factors), where=w > 0)
    elif reduction == "span":
        wanted = np.where(per_type > 0, _of_types(weights), 0.0)
        final = factors * (total * _ratio(wanted, wanted.sum() * per_type))[types]
    else:
        final = factors * _ratio(total, per_type.sum())
    if after is not None:
        final = final * np.where(alone, _of_types(after)[types], 1.0)
    own = _joined(map(stands_alone, data)).astype(bool) & (types > 0)
    share = np.where(own, _ratio(total, _sums(types, w * own))[types], 0.0)
    cuts = np.cumsum([len(d.tokens) for d in data])[:-1]
    made = zip(
        data,
        np.split(final.astype(np.float32), cuts),
        np.split(share.astype(np.float32), cuts),
        strict=True,
    )
    return [
        attrs.evolve(d, annotations={**d.annotations, FACTOR: factor, SHARE: part})
        for d, factor, part in made
    ]


def _joined(parts: Iterable[ArrayLike]) -> Array:
    """Arrays (T,), one a datum, behind each other."""
    return np.concatenate([np.asarray(part, np.float64) for part in parts])


def _sums(types: NDArray[np.int64], values: Array) -> Array:
    """Sum of the values by type, (3,); 0 for those of none."""
    found = np.bincount(types, values, minlength=len(TYPES) + 1).astype(np.float64)
    found[0] = 0.0
    return found


def _ratio(above: ArrayLike, below: ArrayLike) -> Array:
    """The quotient, 0 where nothing is below."""
    above, below = np.broadcast_arrays(np.asarray(above, float), np.asarray(below, float))
    return np.divide(above, below, out=np.zeros(below.shape), where=below > 0)


def _of_types(values: Mapping[int, float]) -> Array:
    """Values by type code, (3,); 0 for a token of none."""
    return np.array([0.0, values[REASONING], values[ACTION]])


def _levelled(
    token_weights: Array, w: Array, factors: Array, types: NDArray[np.int64], alone: Any
) -> Array:
    """Token weights over their mean within each type; as they are where that is 0."""
    counts = w * ((factors > 0) & alone)
    means = _ratio(_sums(types, counts * token_weights), _sums(types, counts))
    return token_weights / np.where(means > 0, means, 1.0)[types]


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
