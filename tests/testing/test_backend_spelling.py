"""A misspelt name of a backend, policy, sampler or tokenizer never switches an ability off."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from rlvr import Backend, Policy, Sampler, Tokenizer
from rlvr.parts.base import Part
from rlvr.suggest import LONG
from rlvr.testing.contract import check_part

OPTIONAL: dict[type[Part], tuple[str, ...]] = {
    Backend: ("capabilities", "eval_loss", "live_policy"),
    Policy: (
        *("can_export", "context_length", "draws_on_server", "export_weights", "generate_many"),
        *("image_processor", "is_strict", "makes_rollouts", "rollout", "score"),
    ),
    Sampler: ("draws_from_policy", "drawn_by", "exports_weights", "why_empty"),
    Tokenizer: (
        *("stop_ids", "bos_id", "control_ids", "has_bytes", "can_save"),
        *("ends", "closing", "bytes_of", "save"),
    ),
}
"""All that a part of the kind may define besides its essentials."""


def slips(name: str) -> Iterator[str]:
    """A dropped letter, a plural, a swapped pair, camelCase."""
    yield name[:-2] + name[-1]
    yield name + "s"
    yield name[1] + name[0] + name[2:]
    first, *rest = name.split("_")
    if rest:
        yield first + "".join(word.capitalize() for word in rest)


CASES = [(kind, slip) for kind, names in OPTIONAL.items() for name in names for slip in slips(name)]
LATE = [
    (kind, slip, (lambda: None) if inspect.isfunction(getattr(kind, name)) else True)
    for kind, names in OPTIONAL.items()
    for name in names
    for slip in slips(name)
    if len(name) >= LONG + 1
]


def test_all_optional_names_are_here() -> None:
    """A name that a base class gets has its slips tried."""
    for kind, names in OPTIONAL.items():
        public = {name for name in {*vars(kind)} if not name.startswith("_")}
        assert public - kind.__abstractmethods__ - {"kind"} == set(names)


@pytest.mark.parametrize(("kind", "slip"), CASES)
def test_a_slip_is_refused_when_the_class_is_made(kind: type[Part], slip: str) -> None:
    """With the name that is meant."""
    with pytest.raises(TypeError, match=f"{slip}: did you mean"):
        type("Mine", (kind,), {slip: True})


@pytest.mark.parametrize(("kind", "slip", "value"), LATE)
def test_a_slip_of_an_attribute_is_found_by_the_kit(
    kind: type[Part], slip: str, value: object
) -> None:
    """Nothing but the kit sees what `__init__` sets; a function may be a slip of a method."""
    made: Any = type("Mine", (kind,), dict.fromkeys(kind.__abstractmethods__))
    part = made()
    check_part(part, kind)
    setattr(part, slip, value)
    with pytest.raises(TypeError, match=f"{slip}: did you mean"):
        check_part(part, kind)
