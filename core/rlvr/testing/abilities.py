"""Promises that losses and advantages share: settings that adapt, and warnings."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from rlvr.abilities import Adaptive, Watchful
from rlvr.testing.contract import Contract

STEPS: tuple[dict[str, float], ...] = (
    {"kl/reference": 0.5, "loss": 1.0},
    {"kl/reference": 0.0},
    {"loss": 1.0},
    {},
)


class AbilitiesContract(Contract):
    """Base of the contracts of losses and advantages; `_part` gives a new one."""

    def _part(self) -> Any:
        raise NotImplementedError

    def test_what_adapts_is_kept_in_the_memory(self) -> None:
        """`adapted` is pure and gives plain floats; `recalled` a part of the same kind."""
        part = self._part()
        if not isinstance(part, Adaptive):
            pytest.skip("nothing of it adapts")
        memory: dict[str, float] = {}
        for metrics in STEPS:
            before = copy.deepcopy((memory, metrics))
            new = part.adapted(memory, metrics)
            assert (memory, metrics) == before
            assert new == part.adapted(memory, metrics)
            assert all(type(v) is float and math.isfinite(v) for v in new.values()), new
            again = part.recalled(new)
            assert type(again) is type(part)
            assert again.adapted(new, metrics) == part.adapted(new, metrics)
            assert getattr(again, "needs", None) == getattr(part, "needs", None)
            memory = dict(new)

    def test_an_empty_memory_changes_nothing(self) -> None:
        """At the start of a run the part is as its options say."""
        part = self._part()
        if not isinstance(part, Adaptive):
            pytest.skip("nothing of it adapts")
        start, step = part.recalled({}), STEPS[0]
        assert start.adapted({}, step) == part.adapted({}, step)

    def test_notices_are_sentences(self) -> None:
        """Warnings are texts, and metrics that are not there are no reason for one."""
        part = self._part()
        if not isinstance(part, Watchful):
            pytest.skip("it watches no metrics")
        assert list(part.notices({})) == []
        for metrics in STEPS:
            assert all(isinstance(text, str) and text for text in part.notices(metrics))
