"""TaskContract finds abilities that are misspelt, or that a task or an episode does not declare."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from rlvr import BuildContext, Curriculum, Episode, NearMissWarning, Probe, Problem, Task
from rlvr.curriculum.builtin import Epochs
from rlvr.parts.base import Part
from rlvr.testing import CurriculumContract, TaskContract, ToyTask
from rlvr.testing.fakes.toy import ToyEpisode
from tests.testing.conftest import Broken


def with_episode(episode: Callable[[Problem], Any]) -> Any:
    """The toy task with other episodes."""

    class Other(ToyTask):
        def episode(self, problem: Problem) -> Any:
            return episode(problem)

    return Other()


def optional(base: type[Part]) -> list[str]:
    """Every public name that a part of the kind may have and need not."""
    own = {"kind", "not_a_part_method", *base.__abstractmethods__}
    return sorted(name for name in vars(base) if name[0] != "_" and name not in own)


def slips(name: str) -> Iterable[str]:
    """A dropped letter, a plural or its opposite, a swapped pair of letters, camelCase."""
    middle = len(name) // 2
    yield name[:middle] + name[middle + 1 :]
    yield name.removesuffix("s") if name.endswith("s") else f"{name}s"
    yield name[0] + name[2] + name[1] + name[3:]
    first, *others = name.split("_")
    yield first + "".join(map(str.title, others)) if others else name.title()


def test_the_optional_names_are_these() -> None:
    """The list that the next test goes through is not empty, and not outdated."""
    assert optional(Task) == [
        "annotate", "curriculum", "curriculum_option", "discover", "discovered",
        "discovers_problems", "episode", "is_offline", "measure", "probes", "prove", "reference",
        "unsupported", "warnings", "why_unanswerable",
    ]  # fmt: skip
    assert optional(Episode) == [
        "next_tokens", "result", "start", "stop_texts", "take_tokens", "writes_tokens",
    ]  # fmt: skip
    assert optional(Curriculum) == []


@pytest.mark.parametrize("base", [Task, Episode])
def test_every_misspelt_name_is_caught(base: type[Part], broken: Broken) -> None:
    """When the class is made, or by the kit where the warning was overlooked."""
    parent = {Task: ToyTask, Episode: ToyEpisode}[base]
    for name in optional(base):
        for slip in {*slips(name)} - {*optional(base)}:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NearMissWarning)
                try:
                    part = type("Misspelt", (parent,), {slip: vars(base)[name]})
                except TypeError:
                    continue  # refused when the class is made
            make = part if base is Task else lambda part=part: with_episode(part)
            assert "names_are_those_of_a_task" in broken(TaskContract, make_task=make), slip


@pytest.mark.parametrize("name", ["is_offlin", "discoversProblems", "curriculum_options"])
def test_a_misspelt_field_of_an_instance_is_caught(name: str, broken: Broken) -> None:
    """What `__init__` sets is looked at as well."""

    def make() -> ToyTask:
        task = ToyTask()
        setattr(task, name, True)
        return task

    assert broken(TaskContract, make_task=make) == {"names_are_those_of_a_task"}


def test_a_likeness_that_was_only_warned_of_fails(broken: Broken) -> None:
    """`NearMissWarning` is easily overlooked where a plugin is imported; the kit does not."""
    with pytest.warns(NearMissWarning, match="did you mean measure"):

        class Likely(ToyTask):
            def measured_x(self) -> None: ...

    assert broken(TaskContract, make_task=Likely) == {"names_are_those_of_a_task"}

    class Meant(ToyTask):
        not_a_part_method = frozenset({"measured_x"})

        def measured_x(self) -> None: ...

    assert broken(TaskContract, make_task=Meant) == set()


class Lookalike:
    """Has the methods of the toy task and not its base class."""

    def __init__(self) -> None:
        toy = ToyTask()
        self.problems, self.episode = toy.problems, toy.episode
        self.reference, self.unsupported = toy.reference, toy.unsupported


def test_a_part_without_the_base_class_fails(broken: Broken) -> None:
    """A task, an episode and a curriculum."""

    class Loose:
        def prompt(self) -> None: ...

    curriculum = type("Loose", (), {"choose": Epochs(None, BuildContext()).choose})
    assert "names_are_those_of_a_task" in broken(TaskContract, make_task=Lookalike)
    loose = partial(with_episode, lambda problem: Loose())
    assert "names_are_those_of_a_task" in broken(TaskContract, make_task=loose)
    assert broken(CurriculumContract, make_curriculum=curriculum) == {
        "names_are_those_of_a_curriculum"
    }


class Declares(ToyTask):
    discovers_problems = True


class Searches(ToyTask):
    async def discover(self, policy: Any, memory: Any, *, seed: int, step: int) -> Any:
        return memory

    def discovered(self, memory: Mapping[str, Any]) -> Sequence[Problem]:
        return ()


class Finds(Declares):
    async def discover(self, policy: Any, memory: Any, *, seed: int, step: int) -> Any:
        return memory


class HasAnOption(ToyTask):
    curriculum_option = "toy.order=letters"


class GivesNothing(HasAnOption):
    def curriculum(self) -> None: ...


class Proves(ToyTask):
    def prove(self, problem: Problem, probe: Probe) -> bool:
        return True


class Token(ToyEpisode):
    async def next_tokens(self) -> Sequence[int] | None:
        return None

    async def take_tokens(self, completion: Any) -> None: ...


class SaysTokens(ToyEpisode):
    writes_tokens = True


@pytest.mark.parametrize(
    "make",
    [
        Declares, Searches, Finds, HasAnOption, GivesNothing, Proves,
        lambda: with_episode(Token), lambda: with_episode(SaysTokens),
    ],
    ids=[
        "declared only", "not declared", "one of two methods", "an option alone",
        "an option of no curriculum", "proofs of nothing", "tokens not declared", "no tokens",
    ],
)  # fmt: skip
def test_what_is_declared_and_what_is_defined_agree(make: Any, broken: Broken) -> None:
    """Either without the other is found."""
    assert broken(TaskContract, make_task=make) == {"declares_what_it_can_do"}


def test_an_ability_may_be_switched_off(broken: Broken) -> None:
    """By an option: the methods are there, and the task says that it does not search now."""

    class Idle(Searches):
        def __init__(self) -> None:
            super().__init__()
            self.discovers_problems = False

    class Busy(Searches):
        discovers_problems = True

    class Ordered(HasAnOption):
        def curriculum(self) -> Curriculum:
            return Epochs(None, BuildContext())

    for task in (Idle, Busy, Ordered):
        assert broken(TaskContract, make_task=task) == set()


def test_a_wrong_choice_of_the_tasks_own_curriculum_is_found(broken: Broken) -> None:
    """It has to give as many problems as were asked for."""

    class Short(Epochs):
        def choose(self, problems: Any, count: int, **facts: Any) -> Sequence[Problem]:
            return super().choose(problems, count, **facts)[:-1]

    class Hurried(ToyTask):
        def curriculum(self) -> Curriculum:
            return Short(None, BuildContext())

    found = broken(TaskContract, make_task=Hurried)
    assert found == {"choices_are_functions_of_step_and_history"}


def test_reasons_and_results_have_their_form(broken: Broken) -> None:
    """Warnings say something, a reason is a text, and an episode gives an `EpisodeResult`."""

    class Silent(ToyTask):
        def warnings(self, split: str) -> Iterable[str]:
            return [""]

    class Vague(ToyTask):
        def why_unanswerable(self, problem: Problem) -> Any:
            return None

    class Untidy(ToyEpisode):
        def result(self) -> Any:
            return {"files": {}}

    assert broken(TaskContract, make_task=Silent) == {"says_why_in_words"}
    assert broken(TaskContract, make_task=Vague) == {"says_why_in_words"}
    assert "episodes_begin_with_the_prompt_and_end" in broken(
        TaskContract, make_task=partial(with_episode, Untidy)
    )
