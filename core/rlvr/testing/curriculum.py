"""The promises of a curriculum, as tests to inherit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, cast

from rlvr.border.calls import shown
from rlvr.parts import Curriculum
from rlvr.testing.contract import Contract, check_declarations, check_part, not_given, same
from rlvr.testing.process import nothing_changed
from rlvr.types import Message, PassRate, Problem


class CurriculumContract(Contract):
    """
    Tests of a curriculum's promises. Define `make_curriculum`, and `problems` if it needs labels.

    Attributes:
        patience: Steps of three problems after which every problem has been met.
    """

    patience: ClassVar[int] = 300

    def make_curriculum(self) -> Curriculum:
        """A new curriculum, as its spec's target builds it."""
        raise not_given(self, "make_curriculum")

    def problems(self) -> Sequence[Problem]:
        """Problems that it can order, at least four."""
        return [
            Problem(
                id=f"p{i}",
                prompt=(Message(role="user", content=str(i)),),
                labels={"difficulty": ("easy", "medium", "hard")[i % 3]},
            )
            for i in range(12)
        ]

    def repeatable(self) -> list[list[str]]:
        """Ids of the problems of a few steps."""
        part, problems = self.make_curriculum(), self.problems()
        return [self._ids(part, problems, step) for step in (0, 1, 2)]

    # --- promises -------------------------------------------------------------------------------

    def test_names_are_those_of_a_curriculum(self) -> None:
        """It derives from the base class, no name is misspelt, and `choose` is no coroutine."""
        part = self.make_curriculum()
        check_part(part, Curriculum)
        check_declarations(part)

    def test_gives_known_problems_and_as_many_as_asked(self) -> None:
        """Known problems, and as many as asked: also more than there are, and without a history."""
        problems = self.problems()
        known = {problem.id for problem in problems}
        for count in (1, 3, len(problems), 2 * len(problems) + 1):
            for step in (0, 1, 7, 1000):
                for history in ({}, self._history(problems, step)):
                    chosen = _chosen(self.make_curriculum(), problems, count, step, history)
                    came = f"{len(chosen)} problems of {count} at step {step}"
                    assert len(chosen) == count, came
                    strange = {problem.id for problem in chosen} - known
                    assert not strange, f"ids that it was not given: {sorted(strange)}"

    def test_is_a_function_of_its_arguments(self) -> None:
        """Called again, out of order, or on a new object: the same problems."""
        problems = self.problems()
        one = self.make_curriculum()
        line = {step: self._ids(one, problems, step) for step in (0, 1, 2, 5, 40)}
        for step in (40, 2, 5, 0, 1):
            for who, part in (("again", one), ("of a new object", self.make_curriculum())):
                found = self._ids(part, problems, step)
                assert found == line[step], f"step {step} gives {line[step]}, {who} {found}"

    def test_changes_nothing_that_it_is_given(self) -> None:
        """Problems and pass rates belong to the run, and the process to all parts."""
        problems = tuple(self.problems())
        history = MappingProxyType(self._history(problems, 5))
        before = (list(problems), dict(history))
        with nothing_changed():
            self.make_curriculum().choose(problems, 3, seed=1, step=5, history=history)
        same("problems and pass rates", (list(problems), dict(history)), before)

    def test_an_interrupted_run_goes_on_as_it_would_have(self) -> None:
        """Stopped after any step and made anew, it gives what it would have given."""
        problems = self.problems()
        whole, _ = self._simulated(problems, 24, self.make_curriculum)
        one = self.make_curriculum()
        kept, _ = self._simulated(problems, 24, lambda: one)
        same("choices of curricula made anew, and of one", whole, kept)

    def test_meets_every_problem(self) -> None:
        """However its pass rate is, no problem is left out for ever."""
        problems = self.problems()
        curriculum = self.make_curriculum()
        line, _ = self._simulated(problems, self.patience, lambda: curriculum)
        never = {problem.id for problem in problems} - {name for step in line for name in step}
        assert not never, f"not met in {self.patience} steps: {', '.join(sorted(never))}"

    # --- helpers --------------------------------------------------------------------------------

    def _simulated(
        self, problems: Sequence[Problem], steps: int, curriculum: Callable[[], Curriculum]
    ) -> tuple[list[list[str]], Mapping[str, PassRate]]:
        """Ids of each step's problems where a third is never, half the time, always solved."""
        rate = {problem.id: (i % 3) / 2 for i, problem in enumerate(problems)}
        history: dict[str, PassRate] = {}
        line = []
        for step in range(steps):
            chosen = _chosen(curriculum(), problems, 3, step, dict(history))
            line.append([problem.id for problem in chosen])
            for name in line[-1]:
                count = history[name].count + 1 if name in history else 1
                history[name] = PassRate(rate=rate[name], count=count, step=step)
        return line, history

    def _ids(self, curriculum: Curriculum, problems: Sequence[Problem], step: int) -> list[str]:
        history = self._history(problems, step)
        chosen = _chosen(curriculum, problems, 3, step, history)
        return [problem.id for problem in chosen]

    def _history(self, problems: Sequence[Problem], step: int) -> dict[str, PassRate]:
        """A possible history of a run at a step: every second problem was met, one a step."""
        return {
            problem.id: PassRate(rate=(i % 5) / 4, count=1 + i % 3, step=max(0, step - 1 - i))
            for i, problem in enumerate(problems[::2])
            if step > 0
        }


def _chosen(
    curriculum: Curriculum,
    problems: Sequence[Problem],
    count: int,
    step: int,
    history: Mapping[str, PassRate],
) -> Sequence[Problem]:
    """What it chose, if these are problems."""
    found: object = curriculum.choose(problems, count, seed=1, step=step, history=history)
    is_listed = isinstance(found, Sequence) and all(isinstance(one, Problem) for one in found)
    assert is_listed, f"choose gave {shown(found)}, no sequence of problems"
    return cast("Sequence[Problem]", found)
