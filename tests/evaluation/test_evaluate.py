"""pass@k and its interval."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr import EvalReport, Failed, Problem, Reward, ScoredGroup, Trajectory
from rlvr.evaluation.pass_at_k import gain, interval, pass_at, report_of
from rlvr.verification.trust import clopper_pearson


@given(
    samples=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=7), k=st.integers(1, 7)
)
def test_pass_at_k_is_the_share_of_k_subsets_with_a_right_answer(
    samples: list[float], k: int
) -> None:
    """The unbiased estimate, by brute force over all subsets; 0.5 is not right."""
    if k > len(samples):
        return
    subsets = list(combinations(samples, k))
    expected = sum(any(s == 1.0 for s in subset) for subset in subsets) / len(subsets)

    assert pass_at({"p": samples}, k) == pytest.approx(expected)


def test_problems_with_too_few_samples_are_left_out() -> None:
    """pass@2 of a problem with one sample is not a guess."""
    assert pass_at({"a": [1.0], "b": [0.0, 1.0, 0.0]}, 2) == pytest.approx(2 / 3)


def test_interval_covers_the_mean_and_shrinks_with_problems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hand-checked width: sd 0.5, 100 problems: about +-0.098, however many are drawn at once."""
    low, high = interval([0.0, 1.0] * 50)

    assert low < 0.5 < high
    assert high - low == pytest.approx(2 * 1.96 * 0.05, rel=0.1)
    assert interval([]) == (0.0, 0.0)
    roots = [n**0.5 for n in range(100)]
    at_once = interval(roots)
    monkeypatch.setattr("rlvr.evaluation.pass_at_k._REDRAWN_AT_ONCE", 300 * 100)
    assert interval(roots) == at_once


@pytest.mark.parametrize("n", [1, 2, 8, 300])
def test_problems_of_one_value_have_an_interval(n: int) -> None:
    """Nothing to redraw: the exact interval of 0 or n of n, and what it becomes between."""
    _, most = clopper_pearson(0, n)

    assert interval([0.0] * n) == pytest.approx((0.0, most))
    assert interval([1.0] * n) == pytest.approx((1 - most, 1.0))
    assert interval([0.5] * n) == pytest.approx((0.5 - most / 2, 0.5 + most / 2))
    assert interval([0.0] * n, least=-1.0) == pytest.approx((-most, most))


def test_values_that_differ_by_rounding_are_one_value() -> None:
    """A third is gained everywhere: from 2 of 3, from 1 of 3, from 0 of 3."""
    thirds = [1 - 2 / 3, 2 / 3 - 1 / 3, 1 / 3] * 4

    assert len(set(thirds)) > 1
    assert interval(thirds, least=-1.0) == pytest.approx(interval([1 / 3] * 12, least=-1.0))


def report(scores: dict[str, tuple[float, ...]]) -> EvalReport:
    return EvalReport(
        split="test", scores=scores, pass_at={}, low=0, high=0, reward_mean=0, samples=0
    )


def test_gain_is_paired_by_problem() -> None:
    """Four of five problems gain 0.5, whatever they had: an interval of 0.5 sqrt(.16 / 200)."""
    before = report({f"p{i}": (0.0, float(i % 2)) for i in range(200)})
    after = report({f"p{i}": (float(i % 5 > 0), float(i % 2)) for i in range(200)})

    found, low, high = gain(before, after)

    assert found == pytest.approx(0.4)
    assert high - low == pytest.approx(2 * 1.96 * 0.5 * (0.16 / 200) ** 0.5, rel=0.1)


def test_a_gain_of_all_problems_alike_has_an_interval() -> None:
    """Ten problems gain 0.5: up to 30.8 % of all might gain or lose everything instead."""
    before = report(dict.fromkeys("abcdefghij", (0.0,)))
    after = report(dict.fromkeys("abcdefghij", (1.0, 0.0)))

    assert gain(before, after) == pytest.approx((0.5, 0.0372, 0.6543), abs=1e-4)


def test_failed_samples_are_counted_and_not_scored() -> None:
    """A verification that could not run is no wrong answer."""
    group = ScoredGroup(
        problem=Problem(id="p", prompt=()),
        trajectories=[Trajectory.from_text("p", "x")] * 3,
        outcomes=[Reward(value=1, score01=1), Failed(reason="x"), Reward(value=0.3, score01=0)],
    )

    made = report_of([group], split="test", seconds=1.0)

    assert (made.pass1, made.failed, made.samples) == (0.5, 1, 2)
    assert made.pass_at == {1: 0.5, 2: 1.0}
    assert made.reward_mean == pytest.approx(0.65)
