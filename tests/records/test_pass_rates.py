"""Pass rates in columns are the dict of them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from rlvr import PassRate
from rlvr.errors import CheckpointError
from rlvr.records.pass_rates import PassRates, pass_rates
from rlvr.records.run_state import RunState, state_of
from rlvr.types import Checkpoint

NAMES = st.text(max_size=2)
RECORDS = st.dictionaries(
    NAMES,
    st.builds(
        PassRate,
        rate=st.floats(0, 1),
        count=st.integers(0, 2**40),
        step=st.integers(-100, 2**40),
    ),
    max_size=6,
)


@given(first=RECORDS, met=RECORDS, names=st.sets(NAMES, max_size=4), late=st.integers(0, 9))
def test_they_are_the_dict(
    first: dict[str, PassRate], met: dict[str, PassRate], names: set[str], late: int
) -> None:
    """Each change is what a dict would be after it, in its order, and leaves the old ones alone."""
    rates = pass_rates(first)
    unmet = {name: PassRate(rate=0.5, count=0, step=7) for name in sorted(names - first.keys())}

    for found, plain in [
        (rates, first),
        (rates.updated(met), {**first, **met}),
        (rates.without(names), {n: r for n, r in first.items() if n not in names}),
        (rates.later(late), {n: evolve(r, step=r.step + late) for n, r in first.items()}),
        (
            rates.met_at(7, sorted(names)),
            {n: evolve(r, step=7) if n in names else r for n, r in first.items()} | unmet,
        ),
        (PassRates.from_json(json.loads(json.dumps(rates.to_json()))), first),
        (pickle.loads(pickle.dumps(rates)), first),
    ]:
        assert found == plain
        assert plain == found
        assert list(found) == list(plain)
        assert found.updated(met) == {**plain, **met}
    assert rates == first


@given(records=RECORDS, names=st.lists(NAMES))
def test_columns_follow_the_names(records: dict[str, PassRate], names: list[str]) -> None:
    """Whether each was met, its rate and step; 0 where it was not."""
    is_met, rate, step = pass_rates(records).columns_of(names)

    nothing = PassRate(rate=0.0, count=0, step=0)
    assert is_met.tolist() == [name in records for name in names]
    assert rate.tolist() == [records.get(name, nothing).rate for name in names]
    assert step.tolist() == [records.get(name, nothing).step for name in names]


def test_nobody_writes_into_them() -> None:
    """A curriculum that is given them cannot change what a run knows."""
    rates: Any = pass_rates({"a": PassRate(rate=0.5, count=1, step=0)})

    with pytest.raises(TypeError):
        rates["a"] = PassRate(rate=1.0, count=1, step=0)
    with pytest.raises(ValueError, match="read-only"):
        rates.numbers[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        rates.later(1).numbers[0] = 1.0


@pytest.mark.parametrize(
    "history",
    [
        {"ids": ["a"]},
        {"ids": ["a"], "rate_count_step_f64": ""},
        {"ids": ["a", "a"], "rate_count_step_f64": "AAAA" * 16},
        {"ids": ["a"], "rate_count_step_f64": "no base64!"},
        {"ids": ["a"], "rate_count_step_f64": "AAAA"},
        {"ids": 3, "rate_count_step_f64": ""},
        {"a": {"rate": 0.5, "count": 1, "step": 0}},
    ],
)
def test_a_damaged_record_is_said(history: Any) -> None:
    """A state whose numbers do not fit its ids is no state."""
    with pytest.raises(CheckpointError, match="cannot be read"):
        state_of({"step": 3, "history": history}, Checkpoint(path=Path("x"), step=3))


def test_a_state_keeps_its_history_as_columns() -> None:
    """Whatever mapping it was made of; nothing is copied where nothing changes."""
    state = RunState(history={"a": PassRate(rate=0.5, count=1, step=0)})

    assert isinstance(state.history, PassRates)
    assert state.advanced(1.0).history is state.history
    assert evolve(state, step=4).history is state.history
