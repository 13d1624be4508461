"""A misspelt name of a part's own is refused when the class is made."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

import rlvr.parts
from rlvr import (
    Callback,
    Loss,
    NearMissWarning,
    Part,
    RewardFn,
    RewardWrapper,
    SampledBackend,
    Task,
)
from rlvr.suggest import LONG, is_slip

KINDS = [
    value
    for value in vars(rlvr.parts).values()
    if isinstance(value, type) and issubclass(value, Part) and value.__name__ != "SingleTurn"
]
NAMES = sorted({(kind, name) for kind in KINDS for name in dir(kind) if name[0] != "_"}, key=str)
OWN = {"kind", "not_a_part_method"}


def made(kind: type[Part], **names: Any) -> type[Part]:
    return type("Mine", (kind,), names)


@pytest.mark.parametrize(
    ("kind", "name"), [(k, n) for k, n in NAMES if n not in OWN and len(n) > 3]
)
def test_each_slip_of_each_name_is_refused(kind: type[Part], name: str) -> None:
    """A letter less, more or other, two that changed places, camel case: each name of each kind."""
    is_long = len(name.replace("_", "")) >= LONG
    head, *tail = name.split("_")
    slips = {
        name[:-1],
        name + "s",
        name[1:],
        name[:2] + "x" + name[3:] if is_long else name[:-1],
        name[1] + name[0] + name[2:],
        head + "".join(word.title() for word in tail),
    }
    known = {n for k, n in NAMES if k is kind}
    if kind is SampledBackend and not is_long:
        return  # defined there, and short: `last` may stand beside `list`
    for slip in sorted(slips - known):
        with pytest.raises(TypeError, match="did you mean"):
            made(kind, **{slip: lambda self: None})


def test_a_name_that_is_meant_is_exempt() -> None:
    """The class says so, and only then."""
    assert made(RewardFn, verdict_keys=None, not_a_part_method={"verdict_keys"})


def test_a_likeness_is_warned_of() -> None:
    """Further away than one letter: the class is made."""
    with pytest.warns(NearMissWarning, match="did you mean verdict_key"):
        made(RewardFn, verdict_of_key=None)


def test_names_of_its_own_are_free() -> None:
    """Private ones, and those that look like nothing that the kind knows."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(Task, _problem=None, simulator=None, rows=None)


def test_a_class_of_attrs_is_looked_at_too() -> None:
    """Fields are names like methods."""
    with pytest.raises(TypeError, match="importance_weighted"):

        @frozen
        class Mine(Loss):
            importance_weigthed: bool = False


def test_a_subclass_of_a_plugins_part_is_looked_at() -> None:
    """The kind is found through any number of classes between."""
    own = made(RewardFn, tools=None)
    with pytest.raises(TypeError, match="did you mean with_seed"):
        type("Further", (own,), {"wth_seed": None})


def test_a_wrapper_forwards_every_method() -> None:
    """`RewardWrapper` is a kind of its own, and defines anew each method that a reward may have."""
    methods = {n for k, n in NAMES if k is RewardFn and callable(getattr(RewardFn, n))}
    assert {"verdict_key", "at_step"} < methods <= set(vars(RewardWrapper))


@given(st.text("abc_", max_size=5), st.text("abc_", max_size=5))
def test_a_slip_is_one_edit_or_another_order(one: str, other: str) -> None:
    """Against the distance of Levenshtein by brute force, without underscores."""
    a, b = one.replace("_", ""), other.replace("_", "")
    edits = {a[:i] + c + a[j:] for i in range(len(a) + 1) for j in (i, i + 1) for c in ("", *"abc")}
    expected = (b in edits or sorted(a) == sorted(b)) and max(len(a), len(b)) >= 3
    assert is_slip(one, other) == is_slip(other, one) == expected


def test_a_part_without_options_needs_no_init() -> None:
    """It is built like every other, and by hand without arguments."""

    class Mine(Callback):
        pass

    assert isinstance(Mine(None, object()), Callback)
    assert isinstance(Mine(), Callback)
