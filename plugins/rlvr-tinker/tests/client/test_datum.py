"""Our data as the service's: what is shifted, folded and cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlvr import BackendError, Datum, NamedForm
from rlvr_tinker.training.datum import PADDED, check_sendable, for_logprobs, to_ours, to_service


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


def sent(found: Any, name: str) -> list[float]:
    return found.loss_fn_inputs[name].to_numpy().tolist()


def test_sequences_are_shifted_and_weights_folded_into_advantages() -> None:
    """Target n follows input n; sums there need advantage times weight; the tail is not sent."""
    (found,) = to_service([datum()], NamedForm(name="importance_sampling"))

    assert found.model_input.to_ints() == [5, 6, 7]
    assert sent(found, "target_tokens") == [6, 7, 8]
    assert sent(found, "logprobs") == [0, -0.5, -1.5]
    assert sent(found, "advantages") == [0, 0.5, -2.0]
    assert set(found.loss_fn_inputs) == {"target_tokens", "logprobs", "advantages"}


def test_cross_entropy_takes_weights() -> None:
    """Its weight has another name, and it needs no logprobs."""
    (found,) = to_service([datum()], NamedForm(name="cross_entropy"))

    assert sent(found, "weights") == [0, 0.5, -2.0]
    assert set(found.loss_fn_inputs) == {"target_tokens", "weights"}


def test_masks_are_sent_by_the_names_that_a_loss_asks_for() -> None:
    """The tokens that make a sequence's ratio."""
    (found,) = to_service([datum()], NamedForm(name="gspo", masks=("sequence_ratio_mask",)))

    assert sent(found, "sequence_ratio_mask") == [0, 1, 1]


def test_what_is_not_the_policys_is_sent_as_nothing() -> None:
    """Numbers at places outside the mask, NaN included, never reach the service."""
    soiled = datum(advantages=[1, np.nan, 2, -4, 1], logprobs=[9, np.nan, -0.5, -1.5, 9])

    (found,) = to_service([soiled], NamedForm(name="ppo"))

    assert sent(found, "advantages") == [0, 0.5, -2.0]
    assert sent(found, "logprobs") == [0, -0.5, -1.5]


def test_a_forward_pass_marks_the_policys_tokens() -> None:
    """One weight a supervised token, so that what it costs is what is asked."""
    (found,) = for_logprobs([datum()])

    assert sent(found, "weights") == [0, 1, 1]


def test_numbers_come_back_to_their_tokens() -> None:
    """Number n is of token n + 1; 0 where nothing is supervised, past the end too."""
    found = to_ours(datum(), [-7.0, -1.0, -2.0])

    assert found.tolist() == [0, 0, -1, -2, 0]
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"advantages": [0, 0, np.nan, 0, 0]}, "not finite"),
        ({"tokens": [5, 6, 50 + PADDED, 8, 9]}, "5..1074"),
        ({"temperature": 0.7}, "temperature 0.7"),
    ],
)
def test_unfit_data_are_not_sent(change: dict[str, Any], word: str) -> None:
    """A service may repeat for ever what makes it fail: nothing of it leaves this machine."""
    with pytest.raises(BackendError, match="problem 'p'") as error:
        check_sendable([datum(), datum(**change)], vocab_size=50, positions=10)

    assert word in str(error.value)
    assert "datum 1 of 2" in str(error.value)


def test_ids_of_rows_that_pad_the_model_are_sent() -> None:
    """A model may know, and draw, more ids than its tokenizer has."""
    check_sendable([datum(tokens=[5, 6, 49 + PADDED, 8, 9])], vocab_size=50, positions=10)
