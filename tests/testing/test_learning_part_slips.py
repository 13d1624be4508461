"""A misspelt name of an advantage or a loss is caught: when its class is made, or by the kit."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from rlvr import Advantage, LearningPart, Loss, NearMissWarning, Needs
from rlvr.suggest import LONG
from rlvr.testing import AdvantageContract, LossContract
from rlvr.testing.fakes import CentredAdvantage, ReinforceLoss

RIGHT: dict[type[LearningPart], type] = {Advantage: CentredAdvantage, Loss: ReinforceLoss}


def slips_of(name: str) -> set[str]:
    """A dropped letter, a plural, a swapped pair, camelCase."""
    first, *rest = name.split("_")
    camel = first + "".join(word.title() for word in rest) if rest else name.title()
    return {name[:-2] + name[-1], name + "s", name[:-2] + name[-1] + name[-2], camel} - {name}


def optional_names(kind: type[LearningPart]) -> list[str]:
    names = {n for base in (LearningPart, kind) for n in (*vars(base), *base.__annotations__)}
    return sorted(n for n in names if not n.startswith("_") and n != "kind")


SLIPS = [
    pytest.param(kind, slip, name, id=f"{kind.__name__}.{slip}")
    for kind in RIGHT
    for name in optional_names(kind)
    for slip in sorted(slips_of(name))
]


def look_at(part: Any) -> None:
    """As the kit looks at names."""

    class OfAdvantage(AdvantageContract):
        def make_advantage(self) -> Any:
            return part

    class OfLoss(LossContract):
        def make_loss(self) -> Any:
            return part

    contract = OfAdvantage() if isinstance(part, Advantage) else OfLoss()
    contract.test_is_a_part_without_slips()


def test_all_that_an_advantage_or_a_loss_may_define() -> None:
    """The names that are misspelt below."""
    shared = {"adapted", "meet", "needs", "warnings", "with_memory"}
    of_advantages = {"keep", "metrics", "per_token", "refill_limit"}
    of_advantages |= {"breaks_ties", "is_group_relative", "is_per_group"}
    assert {*optional_names(Advantage)} == shared | of_advantages
    assert {*optional_names(Loss)} == shared | {
        "builtin_form",
        "importance_weighted",
        "is_policy_gradient",
        "token_weights",
    }


@pytest.mark.parametrize(("kind", "slip", "name"), SLIPS)
def test_a_misspelt_name_is_refused_in_a_class(
    kind: type[LearningPart], slip: str, name: str
) -> None:
    """With the name that was meant."""
    with pytest.raises(TypeError, match=rf"Mine\.{slip}.*: did you mean {name}\?"):
        type("Mine", (RIGHT[kind],), {slip: lambda self: None})


@pytest.mark.parametrize(("kind", "slip", "name"), SLIPS)
def test_the_kit_finds_a_misspelt_name_of_an_object(
    kind: type[LearningPart], slip: str, name: str
) -> None:
    """Attributes that `__init__` sets are unknown when the class is made; short ones are free."""
    part = RIGHT[kind]()
    look_at(part)
    is_method = callable(getattr(kind, name))
    setattr(part, slip, (lambda *_: None) if is_method else 1)
    if len(name) < LONG:
        look_at(part)
        return
    with pytest.raises(TypeError, match=rf"\.{slip}: did you mean {name}\?"):
        look_at(part)


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(Needs)])
def test_a_misspelt_need_is_refused(name: str) -> None:
    """Fields of a record are known."""
    for slip in slips_of(name):
        with pytest.raises(TypeError, match="unexpected keyword"):
            Needs(**{slip: {"a"}})


def test_a_name_is_no_set_of_letters() -> None:
    """A single text in place of a set of names."""
    with pytest.raises(TypeError, match="a set of names was expected"):
        Needs(annotations="reference")


def test_the_kit_takes_a_likeness_for_a_slip() -> None:
    """A warning when the class is made, a failure in the kit; unless the class says it is meant."""

    def token_weighting(self: Any) -> None: ...

    with pytest.warns(NearMissWarning, match="did you mean token_weights"):
        like = type("Like", (ReinforceLoss,), {"token_weighting": token_weighting})
    meant = {"token_weighting": token_weighting, "not_a_part_method": {"token_weighting"}}
    said = type("Said", (ReinforceLoss,), meant)

    with pytest.raises(NearMissWarning, match="did you mean token_weights"):
        look_at(like())
    look_at(said())
