"""The choices are those of plain rules, written down problem by problem; nothing kept shows."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain, cycle, islice
from itertools import count as numbers
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr import BuildContext, Curriculum, PassRate, Problem, by_pass_rate, by_stages, by_weight
from rlvr.curriculum import choices, orders, pool
from rlvr.curriculum.builtin import ByDifficulty, ByPassRate, DifficultyOptions, PassRateOptions
from rlvr.curriculum.choices import LEAST, REVISIT, epochs
from rlvr.curriculum.select import problems_of_step
from rlvr.records.pass_rates import pass_rates
from rlvr.records.run_state import RunState
from rlvr.seeds import seed_of
from rlvr.testing.fakes import ToyTask

MASK = (1 << 64) - 1
Rates = Mapping[str, float]


def problems(total: int) -> list[Problem]:
    stages = ("easy", "medium", "hard")
    return [
        Problem(id=f"p{i}", prompt=(), labels={"difficulty": stages[i % 3]}) for i in range(total)
    ]


def ids(chosen: Sequence[Problem]) -> list[str]:
    return [problem.id for problem in chosen]


def rates_of(found: Sequence[Problem], weights: Rates | None) -> Rates:
    given = {p.id: 1.0 if weights is None else weights.get(p.id, 1.0) for p in found}
    largest = max(given.values())
    return {n: max(w / largest, LEAST) if largest > 0.0 else 1.0 for n, w in given.items()}


def endless_epochs(found: Sequence[Problem], seed: int) -> Iterator[Problem]:
    for epoch in numbers():
        order = list(range(len(found)))
        random.Random(seed_of(seed, "epoch", epoch)).shuffle(order)
        yield from (found[i] for i in order)


def mixed(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def line(found: Sequence[Problem], weights: Rates, length: int, seed: int) -> list[Problem]:
    """The first places of the line: all points of all stretches, sorted."""
    rates, points = rates_of(found, weights), []
    for i, problem in enumerate(found):
        key = int.from_bytes(sha256(problem.id.encode()).digest()[:8], "big")
        own = mixed(key ^ seed_of(seed, "line"))
        for stretch in range(length + 2):
            drawn = mixed((own + stretch * 0x9E3779B97F4A7C15) & MASK) >> 11
            points.append(((stretch + drawn * 2.0**-53) / rates[problem.id], i))
    return [found[i] for _, i in sorted(points)[:length]]


def in_order(
    found: Sequence[Problem], position: int, count: int, weights: Rates | None, seed: int
) -> list[Problem]:
    if weights is not None:
        return line(found, weights, position + count, seed)[position:]
    return list(islice(endless_epochs(found, seed), position, position + count))


def plain_stages(
    found: Sequence[Problem],
    count: int,
    stages: Mapping[str, int],
    ramp: int,
    seed: int,
    step: int,
    weights: Rates | None,
) -> list[Problem]:
    if step >= ramp:
        everybody = seed_of(seed, "all stages")
        return in_order(found, (step - ramp) * count, count, weights, everybody)
    names = sorted(set(stages.values()))
    rooms = [[p for p in found if stages[p.id] == name] for name in names]
    due, given, before = [0.0] * len(rooms), [0] * len(rooms), [0] * len(rooms)
    for past in range(step + 1):
        before, front = list(given), 1.0 + (len(rooms) - 1) * past / ramp
        shares = [len(room) * min(1.0, max(0.0, front - s)) for s, room in enumerate(rooms)]
        due = [d + count * share / sum(shares) for d, share in zip(due, shares, strict=True)]
        for _ in range(count):
            given[max(range(len(rooms)), key=lambda s: due[s] - given[s])] += 1
    rows = [
        in_order(room, before[s], given[s] - before[s], weights, seed_of(seed, "stage", s))
        for s, room in enumerate(rooms)
    ]
    return list(chain.from_iterable(rows))


def plain_pass_rate(
    found: Sequence[Problem],
    count: int,
    history: Mapping[str, PassRate],
    seed: int,
    step: int,
    target: float,
    explore: float,
    weights: Rates | None,
) -> list[Problem]:
    start = step * count
    ahead = islice(endless_epochs(found, seed), start, start + 2 * len(found))
    unseen = [p for p in dict.fromkeys(p.id for p in ahead) if p not in history]
    met, rates = [p.id for p in found if p.id in history], rates_of(found, weights)

    def pressing(name: str) -> float:
        distance = abs(history[name].rate - target) / max(target, 1.0 - target)
        return rates[name] * (REVISIT + 1.0 - distance) * (step - history[name].step)

    met.sort(key=lambda name: (-pressing(name), seed_of(seed, "tie", step, name)))
    new = min(len(unseen), max(math.ceil(explore * count), count - len(met)))
    by_id = {p.id: p for p in found}
    taken = cycle([*unseen[:new], *met[: count - new]])
    return [by_id[name] for name in islice(taken, count)]


SEED, STEP = st.integers(0, 9), st.integers(0, 30)
WEIGHTS = st.none() | st.lists(st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.9, 2.0]), min_size=1)


def named(weights: list[float] | None, total: int) -> dict[str, float] | None:
    """Weights of the first problems, in another order than theirs."""
    given = None if weights is None else list(enumerate(weights[:total]))[::-1]
    return None if given is None else {f"p{i}": weight for i, weight in given}


@settings(deadline=None)
@given(total=st.integers(1, 40), count=st.integers(1, 20), seed=SEED, step=STEP)
def test_epochs_are_the_plain_ones(total: int, count: int, seed: int, step: int) -> None:
    """Shuffled by Python's own generator, one epoch after another."""
    found = problems(total)

    chosen = epochs(found, count, seed=seed, step=step)

    assert chosen == in_order(found, step * count, count, None, seed)


@settings(deadline=None)
@given(
    total=st.integers(1, 12), count=st.integers(1, 9), weights=WEIGHTS, seed=SEED,
    step=st.integers(0, 9),
)  # fmt: skip
def test_weighted_choices_are_places_of_the_plain_line(
    total: int, count: int, weights: list[float] | None, seed: int, step: int
) -> None:
    """The points of all stretches of all problems, sorted, and read on."""
    found, given = problems(total), named(weights, total) or {}

    chosen = by_weight(found, count, weights=given, seed=seed, step=step)

    assert ids(chosen) == ids(in_order(found, step * count, count, given, seed))


@settings(deadline=None, max_examples=50)
@given(total=st.integers(0, 300), seed=SEED)
def test_a_permutation_is_that_of_random_shuffle(total: int, seed: int) -> None:
    order = list(range(total))
    random.Random(seed_of(seed, "epoch", 2)).shuffle(order)

    assert orders.permutation(total, 2, seed).tolist() == order


@settings(deadline=None)
@given(
    stages=st.lists(st.integers(-1, 3), min_size=1, max_size=12),
    count=st.integers(1, 9) | st.sampled_from([25, 64]),
    ramp=st.integers(0, 20),
    weights=WEIGHTS,
    seed=SEED,
    steps=st.lists(st.integers(0, 24), min_size=1, max_size=3),
)
def test_stages_are_the_plain_ones(
    stages: list[int], count: int, ramp: int, weights: Any, seed: int, steps: list[int]
) -> None:
    """Served from the first step on, in whatever order the steps are asked for."""
    found = problems(len(stages))
    by_id, given = dict(zip(ids(found), stages, strict=True)), named(weights, len(stages))

    for step in steps:
        chosen = by_stages(
            found, count, stages=by_id, ramp_steps=ramp, seed=seed, step=step, weights=given
        )
        plain = plain_stages(found, count, by_id, ramp, seed, step, given)
        assert ids(chosen) == ids(plain)


@settings(deadline=None)
@given(
    records=st.lists(
        st.none() | st.tuples(st.sampled_from([0.0, 0.5, 2 / 3, 1.0]), st.integers(-2, 30)),
        min_size=1,
        max_size=40,
    ),
    count=st.integers(1, 12),
    target=st.sampled_from([0.0, 0.3, 0.5]),
    explore=st.sampled_from([0.01, 0.25, 1.0]),
    weights=WEIGHTS,
    seed=SEED,
    step=STEP,
)
def test_pass_rates_choose_as_plainly(
    records: list[Any],
    count: int,
    target: float,
    explore: float,
    weights: Any,
    seed: int,
    step: int,
) -> None:
    """Few rates and ages, so that many are equally pressing: their hashes decide."""
    found, given = problems(len(records)), named(weights, len(records))
    history = {
        f"p{i}": PassRate(rate=record[0], count=1, step=record[1])
        for i, record in reversed(list(enumerate(records)))
        if record
    }

    chosen = by_pass_rate(
        found, count, history=history, seed=seed, step=step, target=target, explore=explore,
        weights=given,
    )  # fmt: skip

    plain = plain_pass_rate(found, count, history, seed, step, target, explore, given)
    assert ids(chosen) == ids(plain)
    assert chosen == by_pass_rate(
        found, count, history=pass_rates(history), seed=seed, step=step, target=target,
        explore=explore, weights=given,
    )  # fmt: skip


def test_of_very_many_equals_a_seeded_part_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """More pressing ones still come first, and another step prefers other equals."""
    monkeypatch.setattr(choices, "TIED", 5)
    found = problems(60)
    history = {p.id: PassRate(rate=0.5, count=1, step=3) for p in found}
    history["p7"] = PassRate(rate=0.5, count=1, step=1)

    def at(step: int) -> list[str]:
        return ids(by_pass_rate(found, 4, history=history, seed=1, step=step))

    assert at(5)[0] == "p7"
    assert len(set(at(5))) == 4
    assert at(5) == at(5)
    assert len({name for step in range(5, 40) for name in at(step)}) > 30


def forget() -> None:
    """All that is kept between choices."""
    orders.permutation.cache_clear()
    orders.ramp_states.cache_clear()
    pool._last = pool.Pool(())


MAKES: dict[str, Callable[[], Curriculum | None]] = {
    "none": lambda: None,
    "difficulty": lambda: ByDifficulty(DifficultyOptions(ramp_steps=12), BuildContext()),
    "pass-rate": lambda: ByPassRate(PassRateOptions(), BuildContext()),
}


@settings(deadline=None, max_examples=40)
@given(
    name=st.sampled_from(sorted(MAKES)),
    total=st.integers(3, 15),
    stops=st.sets(st.integers(0, 24)),
    lag=st.integers(0, 3),
    seed=SEED,
)
def test_a_resumed_run_chooses_on(
    name: str, total: int, stops: set[int], lag: int, seed: int
) -> None:
    """At each stop the process begins anew, with what a checkpoint keeps; the choices are equal."""

    def run(stops: set[int]) -> list[list[str]]:
        found, order, state = problems(total), MAKES[name](), RunState()
        line: list[list[str]] = []
        for step in range(25):
            if step in stops:
                forget()
                found, order = problems(total), MAKES[name]()
                state = RunState.from_json(json.loads(json.dumps(state.to_json())))
            chosen = problems_of_step(
                ToyTask(), found, 2, seed=seed, state=state, curriculum=order,
                handed_out=line[-1] if lag and line else (), trained=max(0, step - lag),
            )  # fmt: skip
            line.append(ids(chosen))
            met = {p.id: PassRate(rate=len(p.id) % 2 / 3, count=step, step=step) for p in chosen}
            state = attrs.evolve(state, step=step + 1, history={**state.history, **met})
        return line

    assert run(stops) == run(set())


def test_changed_problems_are_chosen_anew() -> None:
    """Nothing that is kept of the last problems is taken for others of the same number."""
    order = ByDifficulty(DifficultyOptions(ramp_steps=5), BuildContext())
    first = problems(9)
    other = [attrs.evolve(p, labels={"difficulty": "easy"}) for p in first[::-1]]

    for found in (first, other, first):
        chosen = order.choose(found, 9, seed=1, step=0, history={})
        easy = [p for p in found if p.labels["difficulty"] == "easy"]
        assert {p.id for p in chosen} == {p.id for p in easy}
        assert all(any(p is q for q in found) for p in chosen)

    growing = list(first)
    epochs_before = by_weight(growing, 9, weights={}, seed=1, step=0)
    growing[0] = Problem(id="new", prompt=())
    assert "new" in ids(by_weight(growing, 9, weights={}, seed=1, step=0))
    assert "new" not in ids(epochs_before)
