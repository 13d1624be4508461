"""Two models on the same problems: by hand, by brute force, and by what must not matter."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.evaluation.compare_models import mcnemar, paired, solves

VERDICTS = st.dictionaries(
    st.sampled_from("abcdefgh"), st.lists(st.booleans(), min_size=1, max_size=5), min_size=1
)


def words(**samples: str) -> dict[str, list[bool]]:
    """Verdicts from words: `1` is right, `0` wrong."""
    return {name: [letter == "1" for letter in word] for name, word in samples.items()}


def test_worked_by_hand() -> None:
    """Four shared problems: rates 1, 1/2, 0, 1 against 0, 1/2, 1, 0; one solved only there."""
    found = paired(
        words(a="11", b="10", c="00", d="11", only="1"),
        words(a="00", b="01", c="11", d="00", other="1"),
    )

    assert (found.problems, found.this, found.against) == (4, 0.625, 0.375)
    assert found.difference == 0.25
    assert (found.both, found.only_this, found.only_against, found.neither) == (0, 2, 1, 1)
    assert found.p_value == 1.0  # three tosses, two one way: as even as three tosses can be


@pytest.mark.parametrize(
    ("only_this", "only_against", "expected"),
    [
        (0, 0, 1.0),
        (5, 5, 1.0),
        (5, 0, 2 / 32),
        (1, 9, 2 * 11 / 1024),
        (9, 1, 2 * 11 / 1024),
        (6, 15, 0.0783538818359375),  # 2 * sum C(21, 0..6) / 2^21 = 2 * 82160 / 2097152
        (0, 2000, 0.0),
    ],
)
def test_mcnemar_against_known_values(only_this: int, only_against: int, expected: float) -> None:
    """Binomial tails of a fair coin, worked out by hand; thousands of tosses do not overflow."""
    assert mcnemar(only_this, only_against) == pytest.approx(expected, abs=1e-12)


@given(only_this=st.integers(0, 9), only_against=st.integers(0, 9))
def test_mcnemar_by_brute_force(only_this: int, only_against: int) -> None:
    """The share of all sequences of tosses that are at least as one-sided as what was found."""
    tosses = min(only_this + only_against, 12)
    only_this = min(only_this, tosses)
    only_against = tosses - only_this
    extreme = abs(only_this - only_against)
    as_extreme = [
        abs(2 * sum(sequence) - tosses) >= extreme for sequence in product((0, 1), repeat=tosses)
    ]

    assert mcnemar(only_this, only_against) == pytest.approx(sum(as_extreme) / len(as_extreme))


@pytest.mark.parametrize(
    ("this", "against"),
    [
        (words(a="11", b="10", c="00", d="11", e="01"), words(a="00", b="1", c="10", d="1", e="0")),
        (words(a="1", b="1", c="0", d="1"), words(a="0", b="0", c="0", d="1")),
        (words(a="100", b="110", c="111", d="000"), words(a="0", b="0", c="1", d="1")),
    ],
)
def test_the_interval_is_that_of_all_redraws(
    this: dict[str, list[bool]], against: dict[str, list[bool]]
) -> None:
    """
    Its ends are the 2.5 % and 97.5 % quantiles of the mean over every one of the n^n redraws.

    10000 of them are drawn: a share may be off by 0.006, four standard errors.
    """
    found = paired(this, against)
    gains = [np.mean(this[name]) - np.mean(against[name]) for name in this]
    means = np.array([np.mean(redraw) for redraw in product(gains, repeat=len(gains))])

    assert found.high is not None
    for end, share in ((found.low, 0.025), (found.high, 0.975)):
        assert (means <= end + 1e-9).mean() >= share - 0.006
        assert (means < end - 1e-9).mean() <= share + 0.006


def test_a_gain_on_every_problem_alike_is_known_as_well_as_ten_problems_tell() -> None:
    """Half a point everywhere, however hard the problem; up to 30.8 % of others may differ."""
    this = {f"p{i}": [True, i % 2 == 0] for i in range(10)}
    against = {f"p{i}": [False, i % 2 == 0] for i in range(10)}

    found = paired(this, against)

    assert (found.low, found.difference, found.high) == pytest.approx((0.037, 0.5, 0.654), abs=1e-3)


@settings(max_examples=40, deadline=None)
@given(this=VERDICTS, against=VERDICTS)
def test_swapping_the_models_flips_the_sign(
    this: dict[str, list[bool]], against: dict[str, list[bool]]
) -> None:
    """Nothing else changes: same problems, mirrored interval, same p."""
    if not set(this) & set(against):
        with pytest.raises(ValueError, match="no problem"):
            paired(this, against)
        return
    one = paired(this, {k: against[k] for k in this if k in against})
    other = paired({k: against[k] for k in this if k in against}, this)

    assert other.difference == pytest.approx(-one.difference)
    assert (other.only_this, other.only_against) == (one.only_against, one.only_this)
    assert (other.p_value, other.problems) == (one.p_value, one.problems)
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low))


@settings(max_examples=20, deadline=None)
@given(verdicts=VERDICTS)
def test_a_model_against_itself(verdicts: dict[str, list[bool]]) -> None:
    """No difference, no evidence, and an interval around nothing."""
    found = paired(verdicts, verdicts)

    assert (found.difference, found.p_value) == (0.0, 1.0)
    assert found.low == -found.high < 0
    assert found.only_this == found.only_against == 0


def test_one_problem_says_little_of_others() -> None:
    """97.5 % of all problems may differ by a whole point either way: 0.025 * 0.5 -+ 0.975."""
    found = paired(words(a="10"), words(a="00"))

    assert (found.low, found.high) == pytest.approx((-0.9625, 0.9875))
    assert found.difference == 0.5


def test_a_problem_is_solved_by_more_than_half_of_its_samples() -> None:
    """Exactly half is not enough, on either side."""
    assert [solves(words(a=w)["a"]) for w in ("1", "10", "110", "100", "0")] == [
        True, False, True, False, False,
    ]  # fmt: skip


def test_majorities_are_of_as_many_samples_on_both_sides() -> None:
    """Five samples against one: the first decides, or equal models would not toss a fair coin."""
    found = paired(words(a="01111", b="10000"), words(a="0", b="1"))

    assert (found.both, found.neither, found.only_this, found.only_against) == (1, 1, 0, 0)
    assert found.this == 0.5  # the rates take all samples
