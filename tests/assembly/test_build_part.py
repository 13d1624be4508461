"""Parts built from specs."""

from __future__ import annotations

import pytest
from attrs import frozen

from rlvr import BuildContext, LossSpec, PartError, option
from rlvr.assembly.build_part import _inner


def refuse(*given: object) -> None:
    raise KeyError("beta")


@frozen(kw_only=True)
class Outer:
    """Options of the loss around it."""

    beta: float = option(0.1, "Strength")


@frozen(kw_only=True)
class Inner:
    """Options of the loss that is inside."""

    beta: float = option(0.2, "Strength", validator=refuse)


def test_a_loss_that_takes_no_options_of_the_one_around_it_is_named() -> None:
    """Whatever its validators raise: exit 3, not a bug of ours."""
    spec = LossSpec(name="inner", target="no:where", config=f"{__name__}:Inner", provider="mine")

    with pytest.raises(PartError, match=r"plugin 'mine', loss 'inner' .*\n.*KeyError: 'beta'"):
        _inner(spec, Outer(), BuildContext())
