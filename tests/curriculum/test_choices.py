"""Choosing the problems of a step: shares by hand, every problem met, functions of arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr import PassRate, Problem, by_pass_rate, by_stages, by_weight, epochs
from rlvr.curriculum.choices import LEAST


def problems(count: int) -> list[Problem]:
    return [Problem(id=f"p{i}", prompt=()) for i in range(count)]


def ids(chosen: Sequence[Problem]) -> list[str]:
    return [p.id for p in chosen]


def met(count: int, rates: dict[str, float], *, step: int = 0) -> dict[str, PassRate]:
    return {name: PassRate(rate=rate, count=count, step=step) for name, rate in rates.items()}


@settings(deadline=None)
@given(total=st.integers(1, 9), count=st.integers(1, 12), seed=st.integers(0, 5))
def test_epochs_meet_every_problem_once_before_any_twice(total: int, count: int, seed: int) -> None:
    """Epochs are permutations, whatever the step size."""
    pool = problems(total)
    line = [p.id for step in range(total) for p in epochs(pool, count, seed=seed, step=step)]

    for epoch in range(count):
        assert sorted(line[epoch * total : (epoch + 1) * total]) == sorted(ids(pool))


def test_order_depends_on_the_seed_and_not_on_earlier_steps() -> None:
    """A resumed run meets the problems that the uninterrupted one would have met."""
    pool = problems(50)
    one = epochs(pool, 10, seed=1, step=3)

    assert one == epochs(pool, 10, seed=1, step=3)
    assert one != epochs(pool, 10, seed=2, step=3)


@settings(deadline=None)
@given(total=st.integers(1, 7), count=st.integers(1, 9), seed=st.integers(0, 3))
def test_equal_weights_are_epochs(total: int, count: int, seed: int) -> None:
    """With one weight for all, the line is permutations one after another."""
    pool = problems(total)
    weights = dict.fromkeys(ids(pool), 0.3)
    line = [
        p.id
        for step in range(total)
        for p in by_weight(pool, count, weights=weights, seed=seed, step=step)
    ]

    for epoch in range(count):
        assert sorted(line[epoch * total : (epoch + 1) * total]) == sorted(ids(pool))


def test_shares_are_the_weights() -> None:
    """Weights 1, 1/2 and 1/4: in seven places four, two and one, over and over."""
    pool = problems(3)
    weights = {"p0": 1.0, "p1": 0.5, "p2": 0.25}

    line = [
        p.id for step in range(4) for p in by_weight(pool, 7, weights=weights, seed=1, step=step)
    ]

    for turn in range(4):
        assert Counter(line[turn * 7 : turn * 7 + 7]) == {"p0": 4, "p1": 2, "p2": 1}


@settings(deadline=None)
@given(
    weights=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=8),
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    seed=st.integers(0, 3),
)
def test_the_line_is_one_line_however_it_is_read(
    weights: list[float], sizes: tuple[int, int], seed: int
) -> None:
    """Steps of any size read the same line; every problem is met, the lightest too."""
    pool = problems(len(weights))
    by_id = {f"p{i}": w for i, w in enumerate(weights)}
    one, other = sizes
    length = one * other * 3

    def line(count: int) -> list[str]:
        steps = range(length // count)
        return [
            p.id
            for step in steps
            for p in by_weight(pool, count, weights=by_id, seed=seed, step=step)
        ]

    assert line(one) == line(other)
    longest = int(2 * len(pool) / LEAST) + 1
    everything = by_weight(pool, longest, weights=by_id, seed=seed, step=0)
    assert set(ids(everything)) == set(ids(pool))


def test_stages_open_one_after_another() -> None:
    """Ten easy, ten medium, ten hard, a ramp of four: shares by hand at its quarters."""
    pool = problems(30)
    stages = {p.id: i // 10 for i, p in enumerate(pool)}

    def stage_counts(step: int) -> list[int]:
        chosen = by_stages(pool, 12, stages=stages, ramp_steps=4, seed=1, step=step)
        found = Counter(stages[p.id] for p in chosen)
        return [found[s] for s in range(3)]

    assert stage_counts(0) == [12, 0, 0]
    assert stage_counts(1) == [8, 4, 0]  # front 1.5: shares 10, 5, 0
    assert stage_counts(2) == [6, 6, 0]  # front 2
    assert sum(stage_counts(3)) == 12  # front 2.5: shares 10, 10, 5: 4.8, 4.8, 2.4
    assert stage_counts(3)[2] in (2, 3)


@settings(deadline=None)
@given(
    stages=st.lists(st.integers(-1, 3), min_size=1, max_size=9),
    count=st.integers(1, 7),
    ramp=st.integers(0, 12),
    seed=st.integers(0, 3),
)
def test_stages_fill_each_step_and_meet_every_problem(
    stages: list[int], count: int, ramp: int, seed: int
) -> None:
    """Each step has its number; after the ramp one epoch meets all; the first step is easy."""
    pool = problems(len(stages))
    by_id = {f"p{i}": stage for i, stage in enumerate(stages)}

    def at(step: int) -> list[Problem]:
        return by_stages(pool, count, stages=by_id, ramp_steps=ramp, seed=seed, step=step)

    line = [at(step) for step in range(ramp + len(pool))]

    assert all(len(chosen) == count for chosen in line)
    assert {p.id for chosen in line[ramp:] for p in chosen} == set(by_id)
    if ramp:
        assert {by_id[p.id] for p in line[0]} == {min(stages)}


def test_pass_rates_near_the_target_come_first() -> None:
    """Half solved before nearly solved before solved, at equal age."""
    pool = problems(4)
    history = met(3, {"p0": 1.0, "p1": 0.5, "p2": 0.9, "p3": 0.6})

    chosen = by_pass_rate(pool, 2, history=history, seed=1, step=5)

    assert ids(chosen) == ["p1", "p3"]


def test_solved_problems_return_and_forgotten_ones_come_often_again() -> None:
    """Easy to hard and back, by hand: pressing is (0.1 + 1 - distance) * age."""
    pool = problems(2)

    def first(solved_rate: float, age: int) -> str:
        history = {
            "p0": PassRate(rate=solved_rate, count=5, step=20 - age),
            "p1": PassRate(rate=0.5, count=5, step=19),
        }
        return by_pass_rate(pool, 1, history=history, seed=1, step=20)[0].id

    assert first(1.0, 10) == "p1"  # 0.1 * 10 < 1.1 * 1
    assert first(1.0, 12) == "p0"  # 0.1 * 12 > 1.1 * 1: tried again
    assert first(0.7, 2) == "p0"  # 0.7 * 2 > 1.1 * 1: it was forgotten


def test_unseen_problems_keep_their_share() -> None:
    """A quarter of the step is for problems never met; the whole step while none was met."""
    pool = problems(12)
    history = met(1, {f"p{i}": 0.5 for i in range(8)})

    chosen = ids(by_pass_rate(pool, 4, history=history, seed=1, step=3))

    assert sum(name not in history for name in chosen) == 1
    assert ids(by_pass_rate(pool, 4, history={}, seed=1, step=3)) == ids(
        epochs(pool, 4, seed=1, step=3)
    )


@settings(deadline=None)
@given(total=st.integers(1, 12), count=st.integers(1, 6), seed=st.integers(0, 3))
def test_every_problem_is_met_again_and_again(total: int, count: int, seed: int) -> None:
    """However its rate and its weight are, no problem waits for ever."""
    pool = problems(total)
    rate = {p.id: (i % 3) / 2 for i, p in enumerate(pool)}
    history: dict[str, PassRate] = {}
    meetings: Counter[str] = Counter()

    weights = {"p0": 0.0}
    for step in range(600 + 30 * total):
        chosen = by_pass_rate(pool, count, history=history, seed=seed, step=step, weights=weights)
        for problem in chosen:
            meetings[problem.id] += 1
            history[problem.id] = PassRate(rate=rate[problem.id], count=1, step=step)
        if min(meetings[p.id] for p in pool) >= 2:
            return

    raise AssertionError(meetings)


def test_light_problems_are_chosen_less_by_pass_rate_too() -> None:
    """Of two problems of one age and rate, the weighted-down one stands back."""
    pool = problems(2)
    history = met(3, {"p0": 0.5, "p1": 0.5})

    chosen = by_pass_rate(pool, 1, history=history, seed=1, step=4, weights={"p0": 0.2})

    assert ids(chosen) == ["p1"]


@pytest.mark.parametrize(
    "choose",
    [
        lambda pool, seed: epochs(pool, 5, seed=seed, step=7),
        lambda pool, seed: by_weight(pool, 5, weights={"p1": 0.3}, seed=seed, step=7),
        lambda pool, seed: by_stages(
            pool, 5, stages={p.id: i % 3 for i, p in enumerate(pool)}, ramp_steps=20,
            seed=seed, step=7,
        ),
        lambda pool, seed: by_pass_rate(
            pool, 5, history=met(2, {p.id: 0.5 for p in pool[:20]}), seed=seed, step=7
        ),
    ],
    ids=["epochs", "weight", "stages", "pass-rate"],
)  # fmt: skip
def test_a_choice_is_a_function_of_its_arguments(
    choose: Callable[[list[Problem], int], list[Problem]],
) -> None:
    """Asked twice, the same; another seed, another choice."""
    pool = problems(40)

    assert choose(pool, 1) == choose(pool, 1)
    assert len({tuple(ids(choose(pool, seed))) for seed in range(4)}) > 1
