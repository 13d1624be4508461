"""The count of second opinions: its interval, its alarm, its figures."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.verification.trust import Trust, clopper_pearson


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [  # by the quantiles of the beta distribution (R: binom.test)
        (0, 10, 0.0, 0.3084971),
        (1, 1, 0.025, 1.0),
        (2, 2, 0.1581139, 1.0),
        (1, 20, 0.0012651, 0.2487328),
        (5, 100, 0.0164319, 0.1128349),
        (10, 10, 0.6915029, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_the_interval_is_the_published_one(hits: int, n: int, low: float, high: float) -> None:
    """Clopper and Pearson's, to six digits."""
    assert clopper_pearson(hits, n) == pytest.approx((low, high), abs=1e-6)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_each_bound_leaves_a_fortieth_outside(case: tuple[int, int]) -> None:
    """At the lower bound so many hits or more have probability 2.5 %; the upper one mirrors it."""
    hits, n = case
    low, high = clopper_pearson(hits, n)

    def tail(share: float, least: int) -> float:
        return sum(math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(least, n + 1))

    assert 0.0 <= low <= hits / n <= high <= 1.0
    if hits:
        assert tail(low, hits) == pytest.approx(0.025, abs=1e-9)
    assert clopper_pearson(n - hits, n) == pytest.approx((1 - high, 1 - low), abs=1e-9)


@pytest.mark.parametrize(("hits", "n"), [(-1, 3), (4, 3)])
def test_no_share_has_no_interval(hits: int, n: int) -> None:
    """More hits than cases, or fewer than none, are refused."""
    with pytest.raises(ValueError, match="is no share"):
        clopper_pearson(hits, n)


def test_one_false_accept_is_no_alarm() -> None:
    """One answer proves little; two of two do."""
    assert not Trust(rejected=1).is_past(0.1)
    assert Trust(rejected=2).is_past(0.1)


def test_answers_that_wait_count_as_confirmed() -> None:
    """Where rejections are quick and confirmations slow, the first to arrive prove nothing."""
    assert Trust(rejected=3).is_past(0.1)
    assert not Trust(rejected=3, waiting=30).is_past(0.1)


def test_failures_and_no_opinion_raise_no_alarm_and_hide_none() -> None:
    """They are in no share: neither as confirmed nor as rejected."""
    trust = Trust(rejected=4, failed=100, unsure=100)

    assert trust.is_past(0.1)
    assert trust.metrics()["trust/false_accept"] == 1.0
    assert trust.metrics()["trust/failed"] == 100.0
    assert not Trust(failed=100, unsure=100).is_past(0.0)


def test_a_threshold_of_one_is_never_passed() -> None:
    """No share is above 1."""
    assert not Trust(rejected=10_000).is_past(1.0)


def test_nothing_judged_has_no_share() -> None:
    """A share of nothing is no number; the rest is told."""
    assert "trust/false_accept" not in Trust(waiting=2).metrics()
    assert all(math.isfinite(v) for v in Trust(waiting=2).metrics().values())
    assert "none judged yet" in Trust(waiting=2).sentence()


def test_the_later_line_of_an_answer_counts() -> None:
    """`asked`, then what came of it; lines that say something else are ignored."""
    where = {"step": 1, "id": "a", "trajectory": "trajectories/step-000001.jsonl:1"}
    other = {**where, "trajectory": "trajectories/step-000001.jsonl:2"}
    records = [
        {**where, "opinion": "asked"},
        {**other, "opinion": "asked"},
        {**where, "opinion": "rejected", "seconds": 1.5},
        {"step": 1, "opinion": "alarm"},
        {"odd": True},
        {"trajectory": "x", "opinion": "asked"},
        {**where, "opinion": ["asked"]},
        {**where, "step": None, "opinion": "rejected"},
        7,
        None,
    ]

    trust = Trust.of(records)

    assert (trust.rejected, trust.waiting, trust.judged) == (1, 1, 1)
    assert trust.cost_s == 1.5
    assert trust.has_alarmed
