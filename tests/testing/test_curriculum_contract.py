"""CurriculumContract passes on a right curriculum, and finds each planted fault."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from rlvr import Curriculum, PassRate, Problem, epochs
from rlvr.testing import CurriculumContract
from rlvr.testing.contract import Contract

Broken = Callable[[type[Contract]], set[str]]
NUMBER = "gives_known_problems_and_as_many_as_asked"
PURE = "is_a_function_of_its_arguments"
RESUMED = "an_interrupted_run_goes_on_as_it_would_have"
ALL = "meets_every_problem"


class Right(Curriculum):
    """Epochs."""

    def choose(
        self,
        problems: Sequence[Problem],
        count: int,
        *,
        seed: int,
        step: int,
        history: Mapping[str, PassRate],
    ) -> Sequence[Problem]:
        return epochs(problems, count, seed=seed, step=step)


class GivesWhatThereIs(Right):
    def choose(self, problems: Sequence[Problem], count: int, **facts: Any) -> Sequence[Problem]:
        return super().choose(problems, count, **facts)[: len(problems)]


class MakesProblems(Right):
    def choose(self, problems: Sequence[Problem], count: int, **facts: Any) -> Sequence[Problem]:
        return [*super().choose(problems, count, **facts)[1:], Problem(id="new", prompt=())]


class Remembers(Right):
    def __init__(self) -> None:
        self.calls = 0

    def choose(
        self, problems: Sequence[Problem], count: int, *, step: int, **facts: Any
    ) -> Sequence[Problem]:
        self.calls += 1
        return super().choose(problems, count, step=self.calls, **facts)


class DrawsUnseeded(Right):
    def choose(self, problems: Sequence[Problem], count: int, **facts: Any) -> Sequence[Problem]:
        return random.choices(problems, k=count)


class ForgetsTheLast(Right):
    def choose(self, problems: Sequence[Problem], count: int, **facts: Any) -> Sequence[Problem]:
        return super().choose(problems[:-1], count, **facts)


class NeedsHistory(Right):
    def choose(
        self,
        problems: Sequence[Problem],
        count: int,
        *,
        history: Mapping[str, PassRate],
        **facts: Any,
    ) -> Sequence[Problem]:
        met = [problem for problem in problems if problem.id in history]
        return super().choose(met, count, history=history, **facts)


class WritesPassRates(Right):
    def choose(
        self, problems: Sequence[Problem], count: int, *, history: Any, **facts: Any
    ) -> Sequence[Problem]:
        history.setdefault(problems[0].id, PassRate(rate=0.0, count=0, step=0))
        return super().choose(problems, count, history=history, **facts)


def contract_of(curriculum: type) -> type[CurriculumContract]:
    class Of(CurriculumContract):
        patience = 8

        def make_curriculum(self) -> Any:
            return curriculum()

    return Of


def test_a_right_curriculum_holds_every_promise(broken: Broken) -> None:
    """Nothing is found where nothing is wrong."""
    assert broken(contract_of(Right)) == set()


@pytest.mark.parametrize(
    ("curriculum", "promise"),
    [
        (GivesWhatThereIs, NUMBER),
        (MakesProblems, NUMBER),
        (NeedsHistory, NUMBER),
        (Remembers, PURE),
        (Remembers, RESUMED),
        (DrawsUnseeded, PURE),
        (ForgetsTheLast, ALL),
        (WritesPassRates, "changes_nothing_that_it_is_given"),
    ],
)
def test_each_planted_fault_is_found(broken: Broken, curriculum: type, promise: str) -> None:
    """The promise that it breaks is among those that fail."""
    assert promise in broken(contract_of(curriculum))
