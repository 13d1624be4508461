"""Promises that losses and advantages share: what they need, settings that adapt, and warnings."""

from __future__ import annotations

import copy
import math
from typing import Any, ClassVar

from rlvr.border.abilities import numbers_of, warnings_of
from rlvr.border.kinds import remembering
from rlvr.parts import LearningPart, Needs
from rlvr.testing.contract import Contract, check_declarations, check_part, same
from rlvr.types import DistributionRequest

STEPS: tuple[dict[str, float], ...] = (
    {"kl/reference": 0.5, "loss": 1.0},
    {"kl/reference": 0.0},
    {"loss": 1.0},
    {},
)


class LearningPartContract(Contract):
    """Base of the contracts of losses and advantages; `_part` gives a new one."""

    _base: ClassVar[type[LearningPart]]

    def _part(self) -> Any:
        raise NotImplementedError

    def test_is_a_part_without_slips(self) -> None:
        """It derives from its base class, and none of its names is a misspelt known one."""
        part = self._part()
        check_part(part, self._base)
        check_declarations(part)

    def test_needs_are_declared(self) -> None:
        """`needs` is a `Needs` of names, model specs and asks; each new part has the same."""
        needs = self._part().needs
        assert isinstance(needs, Needs), f"needs is {needs!r:.80}, no Needs"
        names = (*needs.annotations, *needs.provides, *needs.outputs, *needs.teachers)
        wrong = [name for name in (*names, *needs.teachers.values()) if not isinstance(name, str)]
        assert not wrong, f"names in needs that are no texts: {wrong}"
        asks = needs.distributions.values()
        is_asked = all(isinstance(ask, DistributionRequest) for ask in asks)
        assert is_asked, f"distributions in needs are no DistributionRequest: {asks}"
        both = sorted(needs.annotations & needs.provides)
        assert not both, f"annotations that it needs and provides: {both}"
        same("needs of another part like it", self._part().needs, needs)

    def test_what_adapts_is_kept_in_the_memory(self) -> None:
        """`adapted` is pure and gives plain floats; `with_memory` a part of the same kind."""
        part: LearningPart = self._part()
        memory: dict[str, float] = {}
        for metrics in STEPS:
            before = copy.deepcopy((memory, metrics))
            new = numbers_of(part, part.kind, "adapted", part.adapted(memory, metrics))
            same("memory and metrics after `adapted` was given them", (memory, metrics), before)
            same("`adapted`, called again", part.adapted(memory, metrics), new)
            assert all(math.isfinite(v) for v in new.values()), f"adapted gave {new}: not finite"
            again = remembering(part, new)
            same("class of what with_memory gives", type(again), type(part))
            given = [one.adapted(new, metrics) for one in (again, part)]
            same("`adapted` of what with_memory gives", *given)
            same("needs of what with_memory gives", again.needs, part.needs)
            memory = dict(new)

    def test_an_empty_memory_changes_nothing(self) -> None:
        """At the start of a run the part is as its options say."""
        part, step = self._part(), STEPS[0]
        given = [one.adapted({}, step) for one in (part.with_memory({}), part)]
        same("`adapted` after with_memory({})", *given)

    def test_warnings_are_sentences(self) -> None:
        """Warnings are texts; missing metrics cause none."""
        part = self._part()
        same("warnings where there are no metrics", warnings_of(part, {}), [])
        for metrics in STEPS:
            said = [warnings_of(part, metrics) for _ in range(2)]
            same(f"warnings of {metrics}, asked twice", *said)
