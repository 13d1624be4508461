"""CurriculumContract passes on a right curriculum, and finds each planted fault."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from rlvr import Curriculum, PassRate, Problem, epochs
from rlvr.testing import CurriculumContract
from tests.testing.conftest import Broken, Faults

breaks = Faults()
NUMBER = "gives_known_problems_and_as_many_as_asked"
PURE = "is_a_function_of_its_arguments"
RESUMED = "an_interrupted_run_goes_on_as_it_would_have"
ALL = "meets_every_problem"


class Right(Curriculum):
    """Epochs."""

    def choose(
        self, problems: Sequence[Problem], count: int, *, seed: int, step: int, history: Any
    ) -> Sequence[Problem]:
        return epochs(problems, count, seed=seed, step=step)


@breaks(NUMBER)
class GivesWhatThereIs(Right):
    def choose(self, problems: Sequence[Problem], count: int, **facts: Any) -> Sequence[Problem]:
        return super().choose(problems, count, **facts)[: len(problems)]


@breaks(NUMBER)
class MakesProblems(Right):
    def choose(self, problems: Sequence[Problem], count: int, **facts: Any) -> Sequence[Problem]:
        return [*super().choose(problems, count, **facts)[1:], Problem(id="new", prompt=())]


@breaks(PURE, RESUMED)
class Remembers(Right):
    def __init__(self) -> None:
        self.calls = 0

    def choose(
        self, problems: Sequence[Problem], count: int, *, step: int, **facts: Any
    ) -> Sequence[Problem]:
        self.calls += 1
        return super().choose(problems, count, step=self.calls, **facts)


@breaks(PURE)
class DrawsUnseeded(Right):
    def choose(self, problems: Sequence[Problem], count: int, **facts: Any) -> Sequence[Problem]:
        return random.choices(problems, k=count)


@breaks(ALL)
class ForgetsTheLast(Right):
    def choose(self, problems: Sequence[Problem], count: int, **facts: Any) -> Sequence[Problem]:
        return super().choose(problems[:-1], count, **facts)


@breaks(NUMBER)
class NeedsHistory(Right):
    def choose(
        self, problems: Sequence[Problem], count: int, *, history: Any, **facts: Any
    ) -> Sequence[Problem]:
        met = [problem for problem in problems if problem.id in history]
        return super().choose(met, count, history=history, **facts)


@breaks("changes_nothing_that_it_is_given")
class WritesPassRates(Right):
    def choose(
        self, problems: Sequence[Problem], count: int, *, history: Any, **facts: Any
    ) -> Sequence[Problem]:
        history.setdefault(problems[0].id, PassRate(rate=0.0, count=0, step=0))
        return super().choose(problems, count, history=history, **facts)


def test_a_right_curriculum_holds_every_promise(broken: Broken) -> None:
    """Nothing is found where nothing is wrong."""
    assert broken(CurriculumContract, make_curriculum=Right, patience=8) == set()


@pytest.mark.parametrize(("curriculum", "promise"), breaks.cases)
def test_each_planted_fault_is_found(broken: Broken, curriculum: type, promise: str) -> None:
    """The promise that it breaks is among those that fail."""
    assert promise in broken(CurriculumContract, make_curriculum=curriculum, patience=8)
