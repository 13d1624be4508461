"""How much of an answer a teacher with another tokenizer could be asked about, by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from rlvr import Datum
from rlvr_distill.cross_tokenizer.teacher import of_alignment


def datum(annotations: Mapping[str, Sequence[float]]) -> Datum:
    """A prompt token and three of the policy's; the annotations are of these three."""
    mask = [False, True, True, True]
    return Datum(
        tokens=[1, 2, 3, 4],
        mask=mask,
        logprobs=[0, -1, -1, -1],
        advantages=[0, 1, 1, 1],
        weights=mask,
        annotations={name: [9.0, *values] for name, values in annotations.items()},
    )


def test_means_over_the_policys_tokens() -> None:
    """
    Two answers: 2 and 1 of 3 tokens are 1-1, 1 and 0 masked, the prompt of one was rendered.

    The lost probability counts in 1-1 groups alone: 0.1, 0.2 and 0.6.
    """
    first = {
        "align/1-1": [1, 1, 0],
        "align/masked": [0, 0, 1],
        "align/rendered": [1, 1, 1],
        "align/unmatched_mass": [0.1, 0.2, 0],
    }
    second = {
        "align/1-1": [0, 1, 0],
        "align/masked": [0, 0, 0],
        "align/rendered": [0, 0, 0],
        "align/unmatched_mass": [0, 0.6, 0],
    }

    found = of_alignment([datum(first), datum({}), datum(second)])

    assert {k: v for k, v in found.items() if k.startswith("align/")} == {
        "align/1-1": pytest.approx(3 / 6),
        "align/masked": pytest.approx(1 / 6),
        "align/rendered": pytest.approx(3 / 6),
        "align/unmatched_mass": pytest.approx(0.3),
    }


def test_nothing_is_told_of_a_teacher_that_reads_the_same() -> None:
    """Nor of probability that nobody asked for."""
    assert of_alignment([datum({})]) == {}
    one = {"align/1-1": [0, 0, 0], "align/masked": [1, 1, 1], "align/rendered": [1, 1, 1]}
    assert "align/unmatched_mass" not in of_alignment([datum(one)])
    assert "align/unmatched_mass" not in of_alignment(
        [datum({**one, "align/unmatched_mass": [0, 0, 0]})]
    )
