"""Seeds, weights and updates: pure functions of seed and step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr import Datum
from rlvr.seeds import seed_of
from rlvr.training.minibatches import updates, weigh


def datum(length: int, prompt: int = 2) -> Datum:
    mask = [False] * prompt + [True] * length
    zeros = np.zeros(prompt + length)
    return Datum(
        tokens=range(prompt + length), mask=mask, logprobs=zeros, advantages=zeros, weights=zeros
    )


def test_seed_depends_on_every_part_and_on_their_order() -> None:
    """No two places of a run share a seed by accident."""
    seeds = {seed_of(1, "a"), seed_of(1, "b"), seed_of("a", 1), seed_of(1, "a", 0), seed_of("1a")}

    assert len(seeds) == 5
    assert seed_of(1, "a") == seed_of(1, "a") < 2**63


def test_weights_are_the_three_published_averages() -> None:
    """Hand-worked: lengths 1 and 3, at most 4 tokens."""
    data = [datum(1), datum(3)]

    by_token = [d.weights[2:].tolist() for d in weigh(data, "token", 4)]
    by_sequence = [d.weights[2:].tolist() for d in weigh(data, "sequence", 4)]
    fixed = [d.weights[2:].tolist() for d in weigh(data, "fixed", 4)]

    assert by_token == [[0.25], [0.25] * 3]
    assert by_sequence == [[0.5], pytest.approx([1 / 6] * 3)]
    assert fixed == [[0.125], [0.125] * 3]


def test_a_fixed_budget_counts_every_turn() -> None:
    """Hand-worked: turns of 4 and 2 tokens, and one of 1, at most 4 each: three budgets of 4."""
    mask = [False, *[True] * 4, False, *[True] * 2]
    zeros = np.zeros(len(mask))
    turns = Datum(tokens=range(8), mask=mask, logprobs=zeros, advantages=zeros, weights=zeros)

    long, short = weigh([turns, datum(1)], "fixed", 4)
    assert (long.weights * 12).tolist() == pytest.approx([0, 1, 1, 1, 1, 0, 1, 1])
    assert short.weights[2:].tolist() == [pytest.approx(1 / 12)]


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=40), min_size=1, max_size=6))
def test_fixed_weights_are_equal_and_sum_to_at_most_one(masks: list[list[bool]]) -> None:
    """Whatever the turns, recorded ones past the limit too."""
    data = []
    for mask in masks:
        zeros = np.zeros(len(mask))
        fields = {"logprobs": zeros, "advantages": zeros, "weights": zeros}
        data.append(Datum(tokens=range(len(mask)), mask=mask, **fields))
    weights = np.concatenate([d.weights[d.mask] for d in weigh(data, "fixed", 5)])
    assert weights.sum() <= 1 + 1e-6
    assert len(set(weights.tolist())) <= 1


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8))
def test_weights_sum_to_one_and_are_zero_on_the_prompt(lengths: list[int]) -> None:
    """An update's loss is an average, whatever its lengths."""
    for aggregation in ("token", "sequence"):
        weighted = weigh([datum(n) for n in lengths], aggregation, 30)

        assert sum(float(d.weights.sum()) for d in weighted) == pytest.approx(1.0, rel=1e-5)
        assert all(d.weights[:2].tolist() == [0, 0] for d in weighted)


def test_updates_go_through_all_data_once_a_pass() -> None:
    """Two passes of three minibatches see each datum twice and make six updates."""
    data = [datum(n) for n in range(1, 8)]

    parts = updates(data, passes=2, minibatches=3, aggregation="token", max_tokens=9, seed=4)

    lengths = [
        sorted(int(d.mask.sum()) for part in half for d in part) for half in (parts[:3], parts[3:])
    ]
    assert [len(p) for p in parts] == [3, 2, 2, 3, 2, 2]
    assert lengths == [[1, 2, 3, 4, 5, 6, 7]] * 2
    assert updates([], passes=1, minibatches=1, aggregation="token", max_tokens=9, seed=4) == []
