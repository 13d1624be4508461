"""Estimators of the evaluation, against published or hand-worked numbers."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_chess.evaluation.statistics import (
    kendall_tau,
    left_out,
    macro,
    mean,
    median_survival,
    rate,
    ratio,
    survival,
    survival_figure,
    wilson,
)


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [  # Newcombe 1998, Statistics in Medicine 17:857, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_interval_is_the_published_one(hits: int, n: int, low: float, high: float) -> None:
    """The rows of Newcombe's table, to its four digits."""
    assert wilson(hits, n) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_share_and_mirrors(case: tuple[int, int]) -> None:
    """Inside 0..1, around the share, and that of the misses is its mirror image."""
    hits, n = case
    low, high = wilson(hits, n)
    assert 0.0 <= low <= hits / n <= high <= 1.0
    assert wilson(n - hits, n) == pytest.approx((1 - high, 1 - low))


def test_wilson_refuses_what_is_no_share() -> None:
    """Nothing of nothing has no interval, and more than all is no share."""
    for hits, n in ((0, 0), (3, 2), (-1, 2)):
        with pytest.raises(ValueError, match="no share"):
            wilson(hits, n)


def test_nothing_measured_is_no_number() -> None:
    """A figure of nothing has no value, n = 0, and says so; 0 would be an invented number."""
    for figure in (rate("a", []), mean("a", []), ratio("a", [(0, 0)]), macro("a", {"x": []})):
        assert math.isnan(figure.value)
        assert figure.n == 0
        assert figure.note == "nothing to measure it on"
    assert left_out("a", "no puzzles").note == "no puzzles"


def test_mean_has_the_interval_of_its_standard_error() -> None:
    """For many values the bootstrap's interval is mean +- 1.96 standard errors."""
    values = [(i * 37 % 101) / 100 for i in range(1000)]
    spread = math.sqrt(sum((v - sum(values) / 1000) ** 2 for v in values) / 1000)
    figure = mean("m", values)
    assert figure.value == pytest.approx(sum(values) / 1000)
    assert figure.value - figure.low == pytest.approx(1.96 * spread / math.sqrt(1000), rel=0.1)
    assert figure.high - figure.value == pytest.approx(1.96 * spread / math.sqrt(1000), rel=0.1)
    assert figure == mean("m", values), "equal values give an equal interval"


def test_ratio_is_sum_over_sum() -> None:
    """A position with many moves weighs more: (3 + 0) / (3 + 1), and not the mean of shares."""
    assert ratio("r", [(3, 3), (0, 1)]).value == 0.75
    assert ratio("r", [(3, 3), (0, 1), (0, 0)]).n == 3


def test_macro_counts_each_class_alike() -> None:
    """99 right of a large class and none of a small one is a half, not 99 %."""
    figure = macro("m", {"large": [1.0] * 99, "small": [0.0], "absent": []})
    assert figure.value == 0.5
    varied = macro("m", {"a": [1.0, 0.0] * 50, "b": [1.0] * 10})
    assert varied.value == 0.75
    assert varied.low == pytest.approx(0.75 - 1.96 * 0.5 / 10 / 2, abs=0.01)


def test_classes_of_one_row_do_not_agree_by_being_alone() -> None:
    """By hand: three classes of one row, p(1-p) = 2/9 each; the interval ends at 1."""
    figure = macro("m", {"a": [1.0], "b": [0.0], "c": [1.0]})
    half = 1.96 * math.sqrt(3 * 2 / 9) / 3
    assert figure.value == pytest.approx(2 / 3)
    assert (figure.low, figure.high) == pytest.approx((2 / 3 - half, 1.0), abs=1e-4)
    all_right = macro("m", {str(i): [1.0] for i in range(20)})
    assert all_right.low == pytest.approx(1 - 1.96 * math.sqrt(20 * 2 / 9) / 20, abs=1e-4)
    assert all_right.high == 1.0
    one_small = macro("m", {"large": [1.0] * 99, "small": [0.0]})
    assert one_small.low < 0.2
    assert one_small.high > 0.8


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_the_interval_of_small_classes_holds_the_truth(rows: int) -> None:
    """Twenty classes of true shares .05 to 1, drawn 400 times: the mean is inside 95 % of them."""
    shares = [(i + 1) / 20 for i in range(20)]
    rng = random.Random(5)
    held = 0
    for _ in range(400):
        drawn = {str(p): [float(rng.random() < p) for _ in range(rows)] for p in shares}
        figure = macro("m", drawn)
        held += figure.low <= sum(shares) / 20 <= figure.high
    assert held >= 0.95 * 400


def test_one_value_has_no_interval() -> None:
    """A mean of one is that value; nothing is known of its spread, so no width is claimed."""
    one = mean("policy/kendall_tau", [0.8165])
    alone = ratio("policy/wrong_signs", [(1, 4), (0, 0)])
    reached = survival_figure("selfplay/first_illegal", [7], [True])
    for figure, value in ((one, 0.8165), (alone, 0.25), (reached, 7.0)):
        assert figure.value == value
        assert math.isnan(figure.low)
        assert math.isnan(figure.high)
    assert mean("m", [0.0, 1.0]).low == 0.0


def test_survival_is_kaplan_and_meiers() -> None:
    """The 6-MP arm of Freireich's trial (Cox and Oakes 1984): S(6) = .857, S(23) = .448, ..."""
    events = [6, 6, 6, 7, 10, 13, 16, 22, 23]
    censored = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    times = events + censored
    happened = [True] * len(events) + [False] * len(censored)
    known = {6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}
    assert dict(survival(times, happened)) == pytest.approx(known, abs=5e-4)
    assert median_survival(times, happened) == 23.0


def test_without_censoring_survival_is_the_share_left() -> None:
    """With every case watched to its event the median is the ordinary one."""
    times = [5, 1, 3, 2, 4]
    assert survival(times, [True] * 5) == [
        (t, pytest.approx(s)) for t, s in zip([1, 2, 3, 4, 5], [0.8, 0.6, 0.4, 0.2, 0], strict=True)
    ]
    assert median_survival(times, [True] * 5) == 3.0


def test_a_median_nobody_reached_is_left_out() -> None:
    """Where fewer than half err there is no median, and the note says so."""
    figure = survival_figure("s", [10] * 9 + [3], [False] * 9 + [True])
    assert math.isnan(figure.value)
    assert "half of the 10 cases never came to it" in figure.note
    reached = survival_figure("s", [3, 4, 5, 6] * 10, [True] * 40)
    assert (reached.value, reached.n) == (4.0, 40)
    assert 3.0 <= reached.low <= 4.0 <= reached.high <= 6.0


def test_kendall_tau_is_tau_b() -> None:
    """
    Against every pair counted by hand: 5 concordant, 1 discordant of 6; with one tie in each.

    Wikipedia's example of tau-b is not needed: for n = 4 the pairs can be written down.
    """
    assert kendall_tau([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(4 / 6)
    assert kendall_tau([1, 1, 2], [1, 2, 3]) == pytest.approx(2 / math.sqrt(2 * 3))
    assert kendall_tau([5, 5, 5], [1, 2, 3]) == 0.0
    assert kendall_tau([1, 2, 3], [5, 5, 5]) is None
    assert kendall_tau([1], [1]) is None


def test_kendall_tau_is_symmetric_and_bounded() -> None:
    """-1..1; reversing one ranking changes the sign; the roles can be exchanged."""
    for one in itertools.product(range(3), repeat=4):
        tau = kendall_tau(one, [3, 1, 2, 4])
        assert tau is not None
        assert -1.0 <= tau <= 1.0
        assert kendall_tau([-x for x in one], [3, 1, 2, 4]) == pytest.approx(-tau)
        if len(set(one)) > 1:
            assert kendall_tau([3, 1, 2, 4], one) == pytest.approx(tau)
