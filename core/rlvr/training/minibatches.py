"""Weight the data of a step, and split them into updates.

Both are pure functions of (seed, step), so a resumed run goes on exactly.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import attrs
import numpy as np

from rlvr.seeds import seed_of
from rlvr.types import Datum


def weigh(data: Sequence[Datum], aggregation: str, max_tokens: int) -> list[Datum]:
    """
    Set the weights (T,) that make a loss, a plain sum, the wanted average.

    Args:
        data: N data of one optimiser update; masked positions get weight 0.
        aggregation: "token": 1 / all policy tokens of the update (DAPO, arXiv:2503.14476);
            "sequence": 1 / (N * own length) (the mean of means of GRPO, arXiv:2402.03300);
            "fixed": 1 / (C * max_tokens), C completions in all N, one a turn (Dr. GRPO,
            arXiv:2503.20783, free of length bias).
        max_tokens: Longest completion that sampling allows, for "fixed".

    Returns:
        The data with new weights; over the update they sum to 1 ("fixed": at most 1).
    """
    total = sum(int(d.mask.sum()) for d in data)
    budget = sum(_completions(d, max_tokens) for d in data) * max_tokens
    weighted = []
    for datum in data:
        length = int(datum.mask.sum())
        scale = {
            "token": 1.0 / max(total, 1),
            "sequence": 1.0 / (len(data) * max(length, 1)),
            "fixed": 1.0 / budget,
        }[aggregation]
        weights = np.where(datum.mask, np.float32(scale), np.float32(0))
        weighted.append(attrs.evolve(datum, weights=weights))
    return weighted


def _completions(datum: Datum, max_tokens: int) -> int:
    """Turns of the policy; recorded ones that are longer than `max_tokens` count as several."""
    turns = int((np.diff(datum.mask.astype(np.int8), prepend=0) > 0).sum())
    return max(turns, math.ceil(int(datum.mask.sum()) / max_tokens), 1)


def updates(
    data: Sequence[Datum],
    *,
    passes: int,
    minibatches: int,
    aggregation: str,
    max_tokens: int,
    seed: int,
) -> list[list[Datum]]:
    """
    Split a step's data into its optimiser updates: `passes` times `minibatches` parts.

    Parts are drawn anew each pass from a seeded permutation and weighted on their own. Empty
    parts (fewer data than minibatches) are left out.
    """
    parts: list[list[Datum]] = []
    for turn in range(passes):
        order = list(range(len(data)))
        if minibatches > 1:
            random.Random(seed_of(seed, "pass", turn)).shuffle(order)
        for k in range(minibatches):
            part = [data[i] for i in order[k::minibatches]]
            if part:
                parts.append(weigh(part, aggregation, max_tokens))
    return parts
