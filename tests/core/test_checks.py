"""What nobody should train on: refused with its name, before any of it is used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlvr import BackendError, Datum, HiddenStates, TopK, check_data, extent, fault_of


def datum(**more: Any) -> Datum:
    """Prompt 5 6, policy 7 8, environment 9."""
    values: dict[str, Any] = {
        "tokens": [5, 6, 7, 8, 9],
        "mask": [False, False, True, True, False],
        "logprobs": [0, 0, -0.5, -1.5, 0],
        "advantages": [0, 0, 2, -4, 0],
        "weights": [0, 0, 0.25, 0.5, 0],
        "problem_id": "p",
    }
    return Datum(**{**values, **more})


def test_sound_data_pass() -> None:
    """Nothing is said, and nothing is changed."""
    check_data([])
    check_data([datum(), datum(temperature=0.7)], vocab_size=10, positions=4)
    assert fault_of(datum(), vocab_size=10, positions=4, temperatures=(1.0,)) == ""


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"advantages": [0, 0, np.nan, 0, 0]}, "advantages holds a number that is not finite"),
        ({"logprobs": [0, 0, -np.inf, 0, 0]}, "logprobs holds a number that is not finite"),
        ({"weights": [0, 0, 1]}, "weights has shape (3,), tokens (5,)"),
        ({"mask": [False, True]}, "mask has shape (2,)"),
        ({"tokens": [5, 6, 70, 8, 9]}, "token ids 5..70 leave the vocabulary 0..49"),
        ({"tokens": [5, 6, -1, 8, 9]}, "token ids -1..9"),
        ({"mask": [True, False, True, True, False]}, "first token"),
        ({"temperature": 0.7}, "temperature 0.7, and only 1"),
        ({"temperature": 0.0}, "must be positive"),
        ({"temperature": np.nan}, "must be positive"),
        ({"annotations": {"reference": np.zeros(1)}}, "annotation 'reference' has shape (1,)"),
        (
            {"annotations": {"reference": np.array([0, 0, np.inf, 0, 0])}},
            "annotation 'reference' holds",
        ),
        (
            {"distributions": {"teacher": HiddenStates(states=np.zeros((3, 2)))}},
            "distribution 'teacher' has 3 rows for 2 supervised tokens",
        ),
        (
            {
                "distributions": {
                    "teacher": TopK(ids=[[1]], logprobs=[[-1.0]], actual=[-1.0]),
                }
            },
            "distribution 'teacher' has 1 rows for 2",
        ),
        (
            {"distributions": {"teacher": HiddenStates(states=[[0.0], [np.nan]])}},
            "distribution 'teacher' holds a value that is not a number",
        ),
    ],
)
def test_unfit_data_are_refused_by_name(change: dict[str, Any], word: str) -> None:
    """Which datum, whose problem, and what is wrong with it."""
    with pytest.raises(BackendError, match="problem 'p'") as error:
        check_data([datum(), datum(**change)], vocab_size=50, positions=10, temperatures=(1.0,))

    assert word in str(error.value)
    assert "datum 1 of 2" in str(error.value)


def test_without_a_vocabulary_only_negative_ids_are_wrong() -> None:
    """The line itself knows no model, but no model has such ids."""
    assert fault_of(datum(tokens=[5, 6, 10**6, 8, 9])) == ""
    assert "negative" in fault_of(datum(tokens=[5, 6, -1, 8, 9]))


def test_length_counts_to_the_last_supervised_token() -> None:
    """What comes after it is not used, so it needs no room."""
    assert extent(datum()) == 4
    assert extent(datum(mask=[False] * 5)) == 0
    assert fault_of(datum(), positions=4) == ""
    assert "4 tokens, the model 3 positions" in fault_of(datum(), positions=3)


def test_what_a_loss_needs_must_be_there() -> None:
    """Asked for before the loss is computed."""
    with pytest.raises(BackendError, match="'teacher'"):
        check_data([datum()], needs={"teacher"})
