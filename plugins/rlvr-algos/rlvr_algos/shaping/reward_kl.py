"""The KL to another model as a part of the reward: what each token still has to pay."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from rlvr import BackendError, Datum

LOG_RATIO_LIMIT = 20.0
"""A token's KL estimate is cut at so many nats to either side: one glitch pays no fortune."""


def token_kl(datum: Datum, other: str = "reference") -> NDArray[np.float64]:
    """
    The estimate k1 of each of the policy's n tokens, shape (n,), nats.

    `log pi_sampler - log pi_other` of the sampled token, cut at 20 nats.

    Raises:
        BackendError: The datum has no annotation of the other's name.
    """
    theirs = annotated(datum, other)
    own = np.asarray(datum.logprobs, np.float64)[datum.mask]
    return (own - theirs).clip(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def annotated(datum: Datum, name: str) -> NDArray[np.float64]:
    """
    An annotation at the policy's n tokens, shape (n,).

    Raises:
        BackendError: The datum lacks it.
    """
    if name not in datum.annotations:
        raise BackendError(
            f"The advantage needs the annotation {name!r} of every datum.",
            f"problem {datum.problem_id!r} has: {', '.join(datum.annotations) or 'none'}",
            f"Annotate the data with {name!r}: it is in the advantage's `needs`.",
        )
    return np.asarray(datum.annotations[name], np.float64)[datum.mask]


def to_go(values: NDArray[np.float64], discount: float = 1.0) -> NDArray[np.float64]:
    """Sum of each value and all later ones, the later discounted: shape (n,) like `values`."""
    if discount == 1.0:
        return np.cumsum(values[::-1])[::-1]
    sums, total = np.empty_like(values), 0.0
    for t in range(len(values) - 1, -1, -1):
        total = values[t] + discount * total
        sums[t] = total
    return sums


def with_advantages(datum: Datum, own: NDArray[np.float64]) -> Datum:
    """The datum with the advantages (n,) of the policy's tokens; 0 elsewhere."""
    advantages = np.zeros(len(datum.tokens))
    advantages[datum.mask] = own
    return attrs.evolve(datum, advantages=advantages)


def with_annotation(datum: Datum, name: str, own: NDArray[np.float64]) -> Datum:
    """The datum with an annotation (n,) of the policy's tokens; 0 elsewhere."""
    values = np.zeros(len(datum.tokens), np.float32)
    values[datum.mask] = own
    return attrs.evolve(datum, annotations={**datum.annotations, name: values})


def whitened_apart(
    rows: Sequence[NDArray[np.float64]], kinds: Sequence[str], epsilon: float
) -> list[NDArray[np.float64]]:
    """
    Ragged rows with mean 0 and deviation 1 over all numbers of those of the same kind.

    The deviation is the sample's. Numbers that are all equal, one alone too, become exact zeros.
    """
    found = list(rows)
    for kind in set(kinds):
        places = [place for place, other in enumerate(kinds) if other == kind]
        flat = np.concatenate([rows[i] for i in places])
        is_flat = len(flat) == 0 or flat.min() == flat.max()
        scale = 1.0 if is_flat else flat.std(ddof=1) + epsilon
        for i in places:
            found[i] = np.zeros_like(rows[i]) if is_flat else (rows[i] - flat.mean()) / scale
    return found
