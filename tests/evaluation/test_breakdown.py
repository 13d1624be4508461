"""An evaluation by label: worked by hand, and against the official runner's own arithmetic."""

from __future__ import annotations

import statistics

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr import (
    Failed,
    Outcome,
    Problem,
    Reward,
    ScoredGroup,
    Trajectory,
    UnknownNameError,
    Unscorable,
)
from rlvr.evaluation.breakdown import breakdown
from rlvr.evaluation.pass_at_k import report_of


def group(name: str, verdicts: str, **labels: str) -> ScoredGroup:
    """A group from a word: `1` right, `0` wrong, `f` could not be judged, `u` has no verdict."""
    made: dict[str, Outcome] = {
        "1": Reward(value=1.0, score01=1.0),
        "0": Reward(value=0.1, score01=0.0),
        "f": Failed(reason="no simulator"),
        "u": Unscorable(reason="odd"),
    }
    return ScoredGroup(
        problem=Problem(id=name, prompt=(), labels=labels),
        trajectories=[Trajectory.from_text(name, "x")] * len(verdicts),
        outcomes=[made[v] for v in verdicts],
    )


def test_worked_by_hand() -> None:
    """Three problems, two samples: rates, runs and their spread on paper."""
    found = breakdown(
        [
            group("a", "11", category="cid003", difficulty="easy"),
            group("b", "10", category="cid003", difficulty="hard"),
            group("c", "00", category="cid016", difficulty="easy"),
        ]
    )

    assert found.whole.pass1 == pytest.approx(0.5)
    assert found.whole.pass_at[2] == pytest.approx(2 / 3)
    assert found.whole.runs == pytest.approx((2 / 3, 1 / 3))
    assert found.whole.run_mean == pytest.approx(0.5)
    assert found.whole.run_std == pytest.approx(2**0.5 / 6)  # half their difference, times sqrt 2
    assert found.whole.reward_mean == pytest.approx((3 * 1.0 + 3 * 0.1) / 6)
    cid003 = found.by["category"]["cid003"]
    assert (cid003.problems, cid003.samples, cid003.right) == (2, 4, 3)
    assert cid003.runs == (1.0, 0.5)
    assert found.by["difficulty"]["easy"].pass1 == pytest.approx(0.5)


def test_components_are_means_over_the_samples_that_have_them() -> None:
    """BLEU of two of three samples: 0.3 and 0.5, whatever the third is judged by."""
    rewards: list[Outcome] = [
        Reward(value=1.0, score01=1.0, components={"bleu": 0.5, "format": 1.0}),
        Reward(value=0.2, score01=0.0, components={"bleu": 0.3, "format": 1.0}),
        Reward(value=0.0, score01=0.0, components={"format": 0.0}),
        Failed(reason="no simulator"),
    ]
    answered = attrs.evolve(group("a", "0000"), outcomes=rewards)

    assert breakdown([answered]).whole.components == pytest.approx({"bleu": 0.4, "format": 2 / 3})


@given(
    st.integers(1, 5).flatmap(
        lambda n: st.lists(st.text("01", min_size=n, max_size=n), min_size=1, max_size=8)
    )
)
def test_mean_and_deviation_are_those_of_the_official_report(words: list[str]) -> None:
    """Passed / total of each sample, then statistics.mean and stdev; the mean is pass@1."""
    whole = breakdown([group(f"p{i}", word) for i, word in enumerate(words)]).whole
    samples = len(words[0])
    rates = [sum(word[i] == "1" for word in words) / len(words) for i in range(samples)]

    assert whole.run_mean == pytest.approx(statistics.mean(rates))
    assert whole.run_mean == pytest.approx(whole.pass1)
    if samples > 1:
        assert whole.run_std == pytest.approx(statistics.stdev(rates))
    else:
        assert whole.run_std is None


def test_what_could_not_be_judged_is_in_no_rate() -> None:
    """A failure is neither wrong nor a sample; a problem of failures only is named apart."""
    whole = breakdown([group("a", "1f"), group("b", "u0"), group("c", "ff")]).whole

    assert (whole.problems, whole.samples, whole.failed, whole.unjudged) == (2, 2, 4, 1)
    assert whole.pass1 == 0.5
    assert whole.runs == (1.0, 0.0)
    assert list(whole.pass_at) == [1]


def test_nothing_judged_is_no_zero() -> None:
    """No verdict at all: no rate, rather than one of 0 %."""
    whole = breakdown([group("a", "ff")]).whole

    assert whole.pass1 is None
    assert whole.pass_at == {}
    assert whole.run_mean is None
    assert whole.reward_mean is None


@pytest.mark.parametrize(
    ("samples", "low", "high"), [("00", 0.0, 0.975), ("11", 0.025, 1.0), ("10", 0.0125, 0.9875)]
)
def test_one_problem_says_little_of_others(samples: str, low: float, high: float) -> None:
    """Its interval is that of a run's evaluation: 97.5 % of all problems may be otherwise."""
    scored = [group("a", samples)]
    whole, of_run = breakdown(scored).whole, report_of(scored, split="test", seconds=0)

    assert (whole.low, whole.high) == pytest.approx((low, high))
    assert (whole.low, whole.high) == (of_run.low, of_run.high)
    assert breakdown([]).whole.low is None


def test_labels_that_name_problems_are_no_slices() -> None:
    """Ids, families, and whatever has more than twenty values; the rest is there."""
    groups = [
        group(f"p{i}", "1", id=f"p{i}", family=f"f{i % 2}", hash=f"h{i}", kind=f"k{i % 2}")
        for i in range(21)
    ]
    assert list(breakdown(groups).by) == ["kind"]
    assert list(breakdown(groups[:20]).by) == ["hash", "kind"]


def test_problems_without_a_label_are_in_no_slice_of_it() -> None:
    """An empty label is none."""
    found = breakdown([group("a", "1", kind="x"), group("b", "0", kind=""), group("c", "0")])

    assert list(found.by["kind"]) == ["x"]
    assert found.by["kind"]["x"].problems == 1
    assert found.whole.problems == 3


def test_labels_can_be_crossed() -> None:
    """Each pair of values that some problem has is a slice; an unknown label suggests."""
    groups = [
        group("a", "1", category="x", difficulty="easy"),
        group("b", "0", category="x", difficulty="hard"),
        group("c", "1", category="y", difficulty="easy"),
    ]
    by = breakdown(groups, ["category", "difficulty"]).by["category,difficulty"]

    assert {value: part.pass1 for value, part in by.items()} == {
        "x,easy": 1.0,
        "x,hard": 0.0,
        "y,easy": 1.0,
    }
    with pytest.raises(UnknownNameError, match="did you mean 'category'"):
        breakdown(groups, ["categroy"])


def test_crossed_labels_with_commas_stay_apart() -> None:
    """`x,y` with `z` is another slice than `x` with `y,z`; one label alone is its own name."""
    groups = [group("a", "1", one="x,y", other="z"), group("b", "0", one="x", other="y,z")]

    by = breakdown(groups, ["one", "other"]).by["one,other"]
    assert {value: part.pass1 for value, part in by.items()} == {
        '["x,y", "z"]': 1.0,
        '["x", "y,z"]': 0.0,
    }
    assert breakdown(groups, ["one"]).by["one"].keys() == {"x,y", "x"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["11", "00"], True), (["11", "0"], False), (["11", "0f"], False), (["11", "ff"], False)],
)
def test_a_spread_of_whole_runs_is_told_from_others(words: list[str], expected: bool) -> None:
    """Only where each run holds every problem are mean and deviation comparable."""
    groups = [group(f"p{i}", word) for i, word in enumerate(words)]

    assert breakdown(groups).whole.is_whole is expected
