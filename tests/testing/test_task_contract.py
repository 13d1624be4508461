"""TaskContract passes on a right task, and finds each planted fault."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import pytest

from rlvr import Message, Problem, Trajectory
from rlvr.testing import TaskContract, ToyReward, ToyTask
from tests.testing.conftest import Broken, Faults, contract_of

breaks = Faults()


@breaks("ids_are_unique")
class RepeatsAnId(ToyTask):
    def problems(self, split: str) -> Iterable[Problem]:
        for problem in super().problems(split):
            yield attrs.evolve(problem, id=problem.id.replace("after-b", "after-a"))


@breaks("loads_the_same_every_time")
class ForgetsItsOrder(ToyTask):
    loads = 0

    def problems(self, split: str) -> Iterable[Problem]:
        type(self).loads += 1
        return list(super().problems(split))[:: (-1) ** self.loads]


@breaks("loads_the_same_every_time")
class CountsItsLoads(ForgetsItsOrder):
    def problems(self, split: str) -> Iterable[Problem]:
        given = sorted(super().problems(split), key=lambda problem: problem.id)
        return [attrs.evolve(problem, digest=str(type(self).loads)) for problem in given]


@breaks("splits_are_disjoint")
class LeaksTheTestSplit(ToyTask):
    def problems(self, split: str) -> Iterable[Problem]:
        for problem in super().problems("all" if split == "train" else split):
            yield attrs.evolve(problem, split=split) if split == "train" else problem


@breaks("each_split_has_problems")
class HasNoTestSplit(ToyTask):
    def problems(self, split: str) -> Iterable[Problem]:
        return [] if split == "test" else super().problems(split)


@breaks("prompt_does_not_hold_the_answer")
class TellsTheAnswer(ToyTask):
    SECRET = "module adder(input a, input b, output y);"

    def problems(self, split: str) -> Iterable[Problem]:
        for problem in super().problems(split):
            prompt = (Message(role="user", content=f"Write this:\n  {self.SECRET}"),)
            yield attrs.evolve(problem, prompt=prompt)

    def reference(self, problem: Problem) -> Trajectory | None:
        return Trajectory.from_text(problem.id, self.SECRET)


@breaks("each_split_has_problems")
class SpeaksAsAStranger(ToyTask):
    def problems(self, split: str) -> Iterable[Problem]:
        for problem in super().problems(split):
            (message,) = problem.prompt
            yield attrs.evolve(problem, prompt=(attrs.evolve(message, role="human"),))


@breaks("problems_pickle")
class CannotPickle(ToyTask):
    def problems(self, split: str) -> Iterable[Problem]:
        for problem in super().problems(split):
            yield attrs.evolve(problem, payload=lambda: None)


@breaks("episodes_begin_with_the_prompt_and_end")
class NeverEnds(ToyTask):
    def episode(self, problem: Problem) -> Any:
        return super().episode(attrs.evolve(problem, payload=Endless()))


class Endless:
    turns = float("inf")


@breaks("episodes_are_independent")
class SharesItsEpisode(ToyTask):
    def __init__(self) -> None:
        super().__init__()
        self._only: Any = None

    def episode(self, problem: Problem) -> Any:
        self._only = self._only or super().episode(problem)
        return self._only


@breaks("reference_earns_the_top")
class WrongReference(ToyTask):
    def reference(self, problem: Problem) -> Trajectory | None:
        return Trajectory.from_text(problem.id, "?")


@breaks("unsupported_rows_have_reasons")
class DropsInSilence(ToyTask):
    def unsupported(self) -> Mapping[str, str]:
        return {"row-7": " "}


@breaks("each_split_has_problems")
class EmptyPrompt(ToyTask):
    def problems(self, split: str) -> Iterable[Problem]:
        for problem in super().problems(split):
            yield attrs.evolve(problem, prompt=(Message(role="user", content=" "),))


class Generous(ToyReward):
    """Rewards whatever is said."""

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Any:
        verdict = await super().__call__(problem, trajectory)
        return attrs.evolve(verdict, value=max(verdict.value, 0.1))


@pytest.mark.parametrize("turns", [1, 3])
def test_a_right_task_holds_every_promise(turns: int, broken: Broken) -> None:
    """The kit raises no false alarm, with one turn or several."""
    task = partial(ToyTask, turns=turns)
    assert broken(TaskContract, make_task=task, make_reward=ToyReward) == set()


@pytest.mark.parametrize(("task", "promise"), breaks.cases)
def test_faults_are_found(task: type, promise: str, broken: Broken) -> None:
    """Each planted fault fails the test whose promise it breaks."""
    assert promise in broken(TaskContract, promise, make_task=task, make_reward=ToyReward)


def test_a_reference_beyond_the_top_is_found(broken: Broken) -> None:
    """It passes all the same: a training signal outside of its bounds."""

    class Doubled(ToyReward):
        async def __call__(self, problem: Problem, trajectory: Trajectory) -> Any:
            verdict = await super().__call__(problem, trajectory)
            return attrs.evolve(verdict, value=2 * verdict.value)

    found = broken(TaskContract, make_task=ToyTask, make_reward=Doubled, top=1.0)

    assert "reference_earns_the_top" in found
    assert "reference_earns_the_top" not in broken(
        TaskContract, make_task=ToyTask, make_reward=Doubled, top=2.0
    )


def test_problems_that_can_be_listed_once_are_told_from_an_empty_split() -> None:
    """What is to be done differs: a generator is made anew, a split is filled or left out."""

    class Exhausted(ToyTask):
        def problems(self, split: str) -> Iterable[Problem]:
            return ()

    for task, said in ((Exhausted, "none is left when problems"), (HasNoTestSplit, "is empty")):
        contract = contract_of(TaskContract, make_task=task, make_reward=ToyReward)
        with pytest.raises(AssertionError, match=said):
            contract().test_each_split_has_problems()


def test_a_key_without_the_problem_is_found(broken: Broken) -> None:
    """The right answer to one problem would be right for all of them, from the store."""

    class KeyOfTheAnswer(ToyReward):
        def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str:
            return trajectory.completion.encode().hex().zfill(64)

    found = broken(TaskContract, make_task=ToyTask, make_reward=KeyOfTheAnswer)

    assert found == {"one_answer_to_two_problems_has_two_keys"}


def test_a_generous_reward_is_found(broken: Broken) -> None:
    """Nonsense that earns something fails the task's contract."""
    found = broken(TaskContract, make_task=ToyTask, make_reward=Generous)

    assert found == {"empty_and_senseless_answers_earn_the_bottom"}


def test_promises_cannot_be_overridden() -> None:
    """A subclass that redefines a test is refused, unless it says xfail and why."""
    with pytest.raises(TypeError, match="test_ids_are_unique"):

        class Silenced(TaskContract):
            def test_ids_are_unique(self) -> None:
                """Nothing to see here."""

    with pytest.raises(TypeError, match="xfail"):

        class NoReason(TaskContract):
            @pytest.mark.xfail
            def test_ids_are_unique(self) -> None:
                """Fails, nobody knows why."""

    class Known(TaskContract):
        @pytest.mark.xfail(reason="ids repeat in the published data set")
        def test_ids_are_unique(self) -> None:
            super().test_ids_are_unique()

    assert issubclass(Known, TaskContract)


def test_own_tests_may_be_added() -> None:
    """A subclass may hold more promises than the contract."""

    class More(TaskContract):
        def test_boards_are_square(self) -> None:
            """Another promise."""

    assert "test_boards_are_square" in vars(More)


def test_a_forgotten_factory_is_named(broken: Broken) -> None:
    """A contract without its factory says which one is missing."""

    class Empty(TaskContract):
        pass

    with pytest.raises(NotImplementedError, match=r"Empty must define make_task"):
        Empty().test_ids_are_unique()


def test_sequence_of_prompts_is_typed() -> None:
    """The toy's first prompt is the problem's whole prompt."""
    task = ToyTask()
    (problem, *_) = task.problems("train")
    first: Sequence[Message] | None = task.episode(problem).prompt()

    assert first == problem.prompt


class Asks(ToyTask):
    """Prompts and reference answers as they are given."""

    def __init__(self, *pairs: tuple[str, str]) -> None:
        super().__init__()
        self.pairs = pairs

    def problems(self, split: str) -> Iterable[Problem]:
        for number, (prompt, answer) in enumerate(self.pairs):
            asked = (Message(role="user", content=prompt),)
            yield Problem(id=f"p{number}", prompt=asked, payload=answer, digest=answer)

    def reference(self, problem: Problem) -> Trajectory | None:
        return Trajectory.from_text(problem.id, problem.payload)


WORDS = ("grandmother", "photosynth", "earthquakes", "bookkeeper", "locomotive")


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        ([(f"Say what it is. It is {w}.", w) for w in WORDS], "5 of 5 prompts hold.*'grandmother'"),
        ([(f"Say what it is. It is {w}.", w) for w in WORDS[:3]], ""),  # too few to say
        ([(f"{n} or {n + 1}?", str(n + 1)) for n in range(9)], ""),  # short: a choice, a number
        ([("Answer: yes or Answer: no?", "Answer: yes")] * 9, ""),  # one of a few answers
        ([(f"{w if i else ''}?", w) for i, w in enumerate(WORDS)], ""),  # most, not nearly all
    ],
)
def test_prompts_that_hold_their_answers_are_a_warning(
    pairs: list[tuple[str, str]], told: str
) -> None:
    """Where nearly all do, and neither chance nor a choice explains it; a copy says so."""
    contract = contract_of(TaskContract, make_task=lambda: Asks(*pairs))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        contract().test_prompt_does_not_hold_the_answer()
    assert len(found) == bool(told)
    for warning in found:
        text = str(warning.message)
        assert re.match(told, text)
        contract.min_secret = int(text.rpartition(" ")[2])
        contract().test_prompt_does_not_hold_the_answer()


def test_a_reference_that_fails_is_shown_with_its_score() -> None:
    """Problem, answer, score, what passes, and where to look."""
    contract = contract_of(TaskContract, make_task=WrongReference, make_reward=ToyReward)
    with pytest.raises(AssertionError, match=r"of '.+', '\?', is judged score01 = 0, not 1, with"):
        contract().test_reference_earns_the_top()
