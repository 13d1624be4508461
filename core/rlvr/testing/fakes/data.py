"""Training data for tests of losses and backends."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from rlvr.types import Datum


def random_data(
    *,
    seed: int = 0,
    count: int = 4,
    vocab_size: int = 7,
    needs: Collection[str] = (),
    max_length: int = 9,
) -> list[Datum]:
    """
    `count` ragged data of several turns, with every field filled as a run fills it.

    The first token of each datum belongs to the prompt and at least one to the policy; some data
    have tokens of the environment between two turns. Logprobs lie in -3..-0.1 nats, advantages in
    -2..2 (one a datum), weights are equal and sum to 1 over all of the policy's tokens.
    Annotations are made for every name in `needs`.
    """
    rng = np.random.default_rng(seed)
    masks = []
    for _ in range(count):
        mask = rng.random(int(rng.integers(3, max_length + 1))) < 0.7
        mask[0] = False
        mask[-1] = True
        masks.append(mask)
    total = sum(int(mask.sum()) for mask in masks)
    return [
        Datum(
            tokens=rng.integers(0, vocab_size, mask.size),
            mask=mask,
            logprobs=rng.uniform(-3.0, -0.1, mask.size) * mask,
            advantages=rng.uniform(-2.0, 2.0) * mask,
            weights=mask / total,
            problem_id=f"problem-{place}",
            annotations={
                name: (rng.uniform(-3.0, -0.1, mask.size) * mask).astype(np.float32)
                for name in sorted(needs)
            },
        )
        for place, mask in enumerate(masks)
    ]
