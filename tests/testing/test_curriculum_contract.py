"""CurriculumContract passes on a right curriculum, and finds each planted fault."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from rlvr import Curriculum, PassRate, Problem, epochs
from rlvr.testing import CurriculumContract
from tests.testing.conftest import Broken, Faults, contract_of

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
    assert promise in broken(CurriculumContract, promise, make_curriculum=curriculum, patience=8)


def test_what_a_new_process_has_to_get_again() -> None:
    """The problems of the first three steps, in their order: `plugins check` compares them."""
    contract = contract_of(CurriculumContract, make_curriculum=Right)()
    problems = contract.problems()
    count = len(contract.repeatable()[0])

    assert contract.repeatable() == [
        [problem.id for problem in epochs(problems, count, seed=1, step=step)] for step in (0, 1, 2)
    ]
    assert count > 1


@pytest.mark.parametrize("kind", ["None", "generator"])
def test_what_is_no_sequence_is_said(kind: str) -> None:
    """Whoever forgot the `return`, or wrote `yield`, reads what came instead."""

    class Slips(Right):
        def choose(self, problems: Sequence[Problem], *given: Any, **facts: Any) -> Any:
            return None if kind == "None" else (problem for problem in problems)

    contract = contract_of(CurriculumContract, make_curriculum=Slips)()
    with pytest.raises(AssertionError, match=rf"gave .*{kind}.*, no sequence of problems"):
        contract.test_gives_known_problems_and_as_many_as_asked()
