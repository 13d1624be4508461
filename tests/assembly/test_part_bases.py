"""A part derives from the base class of its kind: any other object is refused by name."""

from __future__ import annotations

import inspect
from typing import Any

import attrs
import pytest

from rlvr import BuildContext, Needs, Part, PartError, PartSpec, RewardSpec, specs
from rlvr.assembly.build_part import build
from rlvr.border.calls import shown
from rlvr.border.kinds import BASES, fault_of_part
from rlvr.plugins.offers import OFFERS


class Everything:
    """Has whatever it is asked for, and no base class."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_each_kind_that_a_plugin_can_offer_has_its_base_class() -> None:
    """A new kind cannot be forgotten, and a base says its own kind."""
    kinds = {spec.kind for spec in OFFERS.values() if issubclass(spec, PartSpec)}

    assert kinds <= set(BASES)
    assert {kind: base.kind for kind, base in BASES.items()} == {kind: kind for kind in BASES}
    records = [cls for _, cls in inspect.getmembers(specs, inspect.isclass) if attrs.has(cls)]
    assert {c.kind for c in records if issubclass(c, PartSpec)} - {"part"} <= set(BASES)


@pytest.mark.parametrize("kind", sorted(BASES))
@pytest.mark.parametrize(
    "came", [Everything(), None, "text", Everything], ids=["instance", "None", "text", "class"]
)
def test_an_object_without_the_base_class_is_no_part(kind: str, came: object) -> None:
    """However much it can do; the fault says what came and what to derive from."""
    fault = fault_of_part(came, kind)

    assert f"derive from rlvr.{BASES[kind].__name__}" in fault
    assert fault_of_part(_made(BASES[kind]), kind) == ""


@pytest.mark.parametrize("kind", ["advantage", "loss"])
@pytest.mark.parametrize("needs", [None, {"logprobs"}, Needs])
def test_needs_are_a_record_of_needs(kind: str, needs: object) -> None:
    """A set of names, or the class, would be read as what it is not."""
    part: Any = _made(BASES[kind])
    part.needs = needs

    assert f"Made.needs = {shown(needs)}, which is no rlvr.Needs" in fault_of_part(part, kind)


def _made(base: type[Part]) -> Part:
    made: Part = type("Made", (base,), dict.fromkeys(base.__abstractmethods__))()
    return made


STRANGE = """
from rlvr import hookimpl
from rlvr import RewardSpec
from rlvr import Reward

RLVR_API = 1

@hookimpl
def rlvr_rewards():
    yield RewardSpec(name="strange", target=__name__ + ":Strange")
    yield RewardSpec(name="unfinished", target=__name__ + ":Unfinished")

class Strange:
    def __init__(self, config, context):
        pass

    def __call__(self, problem, trajectory):
        return Reward(value=1.0, score01=1.0)

from rlvr import RewardFn

class Unfinished(RewardFn):
    def __init__(self, config, context):
        pass
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Strange", "does not derive from rlvr.RewardFn"),
        ("Unfinished", "abstract method"),
    ],
)
def test_a_stranger_is_refused_when_it_is_built(importable_site: Any, name: str, said: str) -> None:
    """The error names plugin, kind and what came, and says what to do: exit 3."""
    importable_site.add("odd", STRANGE, module="site_odd")
    spec = RewardSpec(name=name.lower(), target=f"site_odd:{name}", provider="odd")

    with pytest.raises(PartError) as error:
        build(None, spec, BuildContext())  # type: ignore[arg-type]  # it has no options

    assert f"plugin 'odd', reward '{name.lower()}'" in str(error.value)
    assert "promised: a reward; came: " in str(error.value)
    assert said in str(error.value)
    assert error.value.exit_code == 3
