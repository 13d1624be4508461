"""Data are checked before use, and cut into micro-batches that depend on nothing but them."""

from __future__ import annotations

import numpy as np
import pytest

from rlvr import BackendError
from rlvr_torch.training.microbatches import check_data, microbatches


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logprobs": np.full(8, np.nan)}, "logprobs holds a number that is not finite"),
        ({"advantages": np.full(8, np.inf)}, "advantages holds"),
        ({"weights": np.full(8, -np.inf)}, "weights holds"),
        ({"weights": np.zeros(7)}, r"weights has shape \(7,\), tokens \(8,\)"),
        ({"mask": np.ones(9, bool)}, r"mask has shape \(9,\)"),
        ({"tokens": [1, 2, 3, 4, 5, 6, 7, 999]}, "999 leave the vocabulary"),
        ({"tokens": [-1, 2, 3, 4, 5, 6, 7, 8]}, "-1"),
        ({"mask": np.ones(8, bool)}, "first token is supervised"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"annotations": {"reference": np.zeros(3)}}, "annotation 'reference' has shape"),
        ({"annotations": {"reference": np.full(8, np.nan)}}, "annotation 'reference' holds"),
    ],
)
def test_unusable_data_are_refused(make_datum, changes, message):
    """The fault, the datum's place and its problem are named."""
    data = [make_datum(3, 8, seed=1), make_datum(3, 8, seed=2, **changes)]
    check_data(data[:1], 300, 96)
    with pytest.raises(BackendError, match=rf"(?s)datum 1 of 2 \(problem 'problem-2'\).*{message}"):
        check_data(data, 300, 96)


def test_too_long_data_are_refused_by_what_is_supervised(make_datum):
    """Positions limit the supervised part; an unsupervised tail is never read."""
    mask = np.arange(20) == 5
    check_data([make_datum(1, 20, mask=mask)], 300, 10)
    with pytest.raises(BackendError, match="20 tokens, the model 10 positions"):
        check_data([make_datum(1, 20)], 300, 10)


def test_a_missing_annotation_is_named(make_datum):
    """A loss that needs a reference never runs without one."""
    with pytest.raises(BackendError, match="'reference'"):
        check_data([make_datum(3, 8)], 300, 96, frozenset({"reference"}))


def test_microbatches_hold_their_budget(make_datum):
    """Every supervised datum is in exactly one micro-batch of at most the budget."""
    lengths = [5, 40, 7, 8, 30, 33, 6, 90]
    data = [make_datum(2, length, seed=i) for i, length in enumerate(lengths)]
    data.append(make_datum(2, 6, mask=np.zeros(6, bool)))
    batches = microbatches(data, 66)
    assert sorted(i for batch in batches for i in batch) == list(range(8))
    for batch in batches:
        assert len(batch) == 1 or sum(lengths[i] for i in batch) <= 66
    assert [[lengths[i] for i in batch] for batch in batches] == [
        [5, 6, 7, 8, 30],
        [33],
        [40],
        [90],
    ]


def test_microbatches_do_not_depend_on_order(make_datum):
    """The same data in another order are cut the same way."""
    data = [make_datum(2, 5 + i % 3, seed=i) for i in range(12)]
    order = np.random.default_rng(0).permutation(12)
    shuffled = [data[i] for i in order]
    plain = [[data[i].problem_id for i in batch] for batch in microbatches(data, 21)]
    again = [[shuffled[i].problem_id for i in batch] for batch in microbatches(shuffled, 21)]
    assert plain == again


def test_equal_prompts_stay_together_and_count_once(make_datum):
    """Two groups of four: 20 prompt tokens and four completions of 5 fill 40 tokens each."""
    rng = np.random.default_rng(0)
    prompts = rng.integers(0, 200, (2, 20))
    data = [
        make_datum(20, 25, seed=i, tokens=[*prompts[i % 2], *rng.integers(0, 200, 5)])
        for i in range(8)
    ]
    assert sorted(map(sorted, microbatches(data, 40))) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert len(microbatches(data, 39)) == 4
