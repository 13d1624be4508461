"""Promises that losses and advantages share: what they need, settings that adapt, and warnings."""

from __future__ import annotations

import copy
import math
from typing import Any, ClassVar

from rlvr.border.abilities import numbers_of, warnings_of
from rlvr.border.kinds import remembering
from rlvr.parts import LearningPart, Needs
from rlvr.testing.contract import Contract, check_declarations, check_part
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
        assert isinstance(needs, Needs)
        names = (*needs.annotations, *needs.provides, *needs.outputs, *needs.teachers)
        assert all(isinstance(name, str) for name in (*names, *needs.teachers.values()))
        assert all(isinstance(ask, DistributionRequest) for ask in needs.distributions.values())
        assert not needs.annotations & needs.provides
        assert needs == self._part().needs

    def test_what_adapts_is_kept_in_the_memory(self) -> None:
        """`adapted` is pure and gives plain floats; `with_memory` a part of the same kind."""
        part: LearningPart = self._part()
        memory: dict[str, float] = {}
        for metrics in STEPS:
            before = copy.deepcopy((memory, metrics))
            new = numbers_of(part, part.kind, "adapted", part.adapted(memory, metrics))
            assert (memory, metrics) == before
            assert new == part.adapted(memory, metrics)
            assert all(math.isfinite(v) for v in new.values()), new
            again = remembering(part, new)
            assert type(again) is type(part)
            assert again.adapted(new, metrics) == part.adapted(new, metrics)
            assert again.needs == part.needs
            memory = dict(new)

    def test_an_empty_memory_changes_nothing(self) -> None:
        """At the start of a run the part is as its options say."""
        part, step = self._part(), STEPS[0]
        assert part.with_memory({}).adapted({}, step) == part.adapted({}, step)

    def test_warnings_are_sentences(self) -> None:
        """Warnings are texts; missing metrics cause none."""
        part = self._part()
        assert warnings_of(part, {}) == []
        for metrics in STEPS:
            assert warnings_of(part, metrics) == warnings_of(part, metrics)
