"""The promises of a task, as tests to inherit."""

from __future__ import annotations

import math
import pickle
import warnings
from itertools import islice
from typing import Any, ClassVar

import pytest

from rlvr.border.abilities import warnings_of
from rlvr.border.promises import fault_of_problem, reference_of
from rlvr.parts import Episode, RewardFn, Task
from rlvr.testing.contract import (
    Contract,
    check_declarations,
    check_part,
    differing,
    judged,
    not_given,
    on_open,
    opened,
    same,
)
from rlvr.testing.process import KitWarning
from rlvr.testing.task_abilities import GARBAGE, TaskAbilities, play
from rlvr.types import PassRate, Problem, Reward, Trajectory

ROLES = {"system", "user", "assistant", "tool"}


class TaskContract(TaskAbilities, Contract):
    """
    Tests of a task's promises. Define `make_task`; with `make_reward` references are judged, too.

    Attributes:
        splits: Splits the task has, each with at least one problem.
        top: `value` of a right answer; infinite: any.
        bottom: `value` of an empty or senseless answer.
        max_judged: So many problems are judged by the reward; verifiers may be slow.
        max_turns: An episode must have ended after so many turns.
        min_secret: References shorter than this may stand in the prompt by chance, characters;
            those of half of it or more are a warning where nearly all prompts hold theirs.
    """

    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    top: ClassVar[float] = 1.0
    bottom: ClassVar[float] = 0.0
    max_judged: ClassVar[int] = 4
    max_turns: ClassVar[int] = 64
    min_secret: ClassVar[int] = 16

    def make_task(self) -> Task:
        """A new task, as its spec's target builds it."""
        raise not_given(self, "make_task")

    def make_reward(self) -> RewardFn | None:
        """The reward the task goes with; None skips what needs it."""
        return None

    def repeatable(self) -> Any:
        """Texts of the problems, in their order."""
        return [
            [problem.id, problem.split, problem.digest, *(m.content for m in problem.prompt)]
            for problem in self.make_task().problems("all")
        ]

    judge: RewardFn | None = None
    """The reward that judged in this test, None before: what is wrong may then be its fault."""

    # --- promises -------------------------------------------------------------------------------

    @on_open("make_task")
    async def test_names_are_those_of_a_task(self, task: Task) -> None:
        """The task and its episodes derive from the base classes, and no name is misspelt."""
        check_part(task, Task)
        for problem in islice(task.problems("all"), self.max_judged):
            check_part(task.episode(problem), Episode)

    @on_open("make_task")
    async def test_declares_what_it_can_do(self, task: Task) -> None:
        """Flags and options agree with the methods that they stand for, of episodes too."""
        check_declarations(task)
        if task.curriculum_option:
            assert task.curriculum() is not None, f"{task.curriculum_option} gives no curriculum"
        for problem in islice(task.problems("all"), self.max_judged):
            check_declarations(task.episode(problem))

    @on_open("make_task")
    async def test_says_why_in_words(self, task: Task) -> None:
        """Warnings of each split are texts; so is the reason why a problem cannot be answered."""
        for split in self.splits:
            warnings_of(task, split)
            for problem in task.problems(split):
                same("class of why_unanswerable", type(task.why_unanswerable(problem)), str)

    @on_open("make_task")
    async def test_each_split_has_problems(self, task: Task) -> None:
        """No declared split is empty, and every problem has a prompt and its split's name."""
        for split in self.splits:
            problems = list(task.problems(split))
            again = "none is left when problems() is called again: make them anew in each call"
            assert problems or list(task.problems("all")), again
            assert problems, f"split {split!r} is empty"
            for problem in problems:
                fault = fault_of_problem(problem, task)
                assert not fault, f"split {split!r}: {fault}"
                roles = {message.role for message in problem.prompt} - ROLES
                says = f"the prompt of {problem.id!r} has the role {', '.join(sorted(roles))}"
                assert not roles, f"{says}; chat templates know {', '.join(sorted(ROLES))}"
                has_text = any(message.content.strip() for message in problem.prompt)
                assert has_text, f"the prompt of {problem.id!r} is empty"
                says = f"{problem.id!r} is listed in split {split!r}, its split= is"
                assert problem.split == split, f"{says} {problem.split!r}"

    @on_open("make_task")
    async def test_ids_are_unique(self, task: Task) -> None:
        """No two problems of the task share an id."""
        ids = [problem.id for problem in task.problems("all")]
        repeated = sorted({name for name in ids if ids.count(name) > 1})
        assert not repeated, f"ids of several problems: {', '.join(map(repr, repeated))}"

    @on_open("make_task")
    async def test_splits_are_disjoint(self, task: Task) -> None:
        """No problem is in two splits, and "all" holds every split."""
        every = {problem.id for problem in task.problems("all")}
        seen: dict[str, str] = {}
        for split in self.splits:
            for problem in task.problems(split):
                both = f"{problem.id!r} is in {split!r} and in {seen.get(problem.id)!r}"
                assert problem.id not in seen, both
                assert problem.id in every, f"{problem.id} is in {split!r} but not in 'all'"
                seen[problem.id] = split

    @on_open("make_task")
    async def test_loads_the_same_every_time(self, task: Task) -> None:
        """Two loads give equal problems in the same order: a resumed run goes on where it was."""
        async with opened(self.make_task()) as other:
            for split in self.splits:
                first, second = (list(one.problems(split)) for one in (task, other))
                says = f"two loads of {split!r} give {len(first)} and {len(second)} problems"
                assert len(first) == len(second), says
                for one, again in zip(first, second, strict=True):
                    says = f"two loads give {one.id!r} and {again.id!r} in one place"
                    assert one.id == again.id, says
                    says = f"two loads of {one.id!r} have different {differing(one, again)}"
                    assert one == again, says

    @on_open("make_task")
    async def test_choices_are_functions_of_step_and_history(self, task: Task) -> None:
        """A task's own curriculum gives known problems, as many as asked, the same again."""
        if task.curriculum() is None:
            return  # the run chooses
        problems = list(task.problems(self.splits[0]))
        known = {problem.id for problem in problems}
        history = {p.id: PassRate(rate=0.5, count=1, step=0) for p in problems[::2]}
        for step in (0, 1, 7):
            for count in (1, len(problems) + 1):
                for facts in ({}, history):
                    own = [task.curriculum() for _ in range(2)]
                    first, second = (
                        one.choose(problems, count, seed=1, step=step, history=facts)
                        for one in own
                        if one is not None
                    )
                    same("choice of another", [p.id for p in second], [p.id for p in first])
                    same("number of problems chosen", len(first), count)
                    same("ids that are of no problem", {p.id for p in first} - known, set())

    @on_open("make_task")
    async def test_problems_pickle(self, task: Task) -> None:
        """A problem crosses process borders and comes back equal."""
        for problem in task.problems("all"):
            copy = pickle.loads(pickle.dumps(problem))
            assert copy == problem, f"{problem.id!r} has another {differing(copy, problem)}"

    @on_open("make_task")
    async def test_prompt_does_not_hold_the_answer(self, task: Task) -> None:
        """No reference answer of some length stands in its own prompt."""
        held, references = dict[str, str](), 0
        for problem in task.problems("all"):
            prompt = _squeeze(" ".join(message.content for message in problem.prompt))
            if (reference := reference_of(task, problem)) is None:
                continue
            references += 1
            for text in map(_squeeze, _texts(reference)):
                if len(text) < self.min_secret // 2 or text not in prompt:
                    continue
                held[problem.id] = text
                says = f"the prompt of {problem.id!r} holds its reference answer, {text[:40]!r}"
                assert len(text) < self.min_secret, (
                    f"{says}; a task that asks for that has a greater min_secret"
                )
        if len({*held.values()}) > max(3, 0.5 * references) and len(held) >= 0.9 * references:
            name, text = next(iter(held.items()))
            warnings.warn(
                f"{len(held)} of {references} prompts hold their reference answer, as that of "
                f"{name!r} holds {text!r}: a model need only copy it. If the task is to do so, "
                f"set min_secret to {2 * max(map(len, held.values())) + 2}",
                KitWarning,
                stacklevel=2,
            )

    @on_open("make_task")
    async def test_episodes_begin_with_the_prompt_and_end(self, task: Task) -> None:
        """The first prompt is there, turns follow, and the episode ends whatever is answered."""
        for problem in islice(task.problems("all"), self.max_judged):
            for answer in ("", GARBAGE):
                turns = await play(task.episode(problem), answer, self.max_turns)
                assert 1 <= turns <= self.max_turns, f"{problem.id!r} has {turns} turns"

    @on_open("make_task")
    async def test_episodes_are_independent(self, task: Task) -> None:
        """Playing one episode to its end leaves another of the same problem fresh."""
        for problem in islice(task.problems("all"), self.max_judged):
            one, other = task.episode(problem), task.episode(problem)
            first = one.prompt()
            await play(one, GARBAGE, self.max_turns)
            same(f"prompt of {problem.id!r} after another episode", other.prompt(), first)

    @on_open("make_task")
    async def test_unsupported_rows_have_reasons(self, task: Task) -> None:
        """Rows that yield no problem are listed with a reason, and are not among the problems."""
        ids = {problem.id for problem in task.problems("all")}
        for row, reason in task.unsupported().items():
            assert reason.strip(), f"the unsupported row {row} has no reason"
            assert row not in ids, f"{row} is a problem and unsupported ({reason})"

    @on_open("make_task")
    async def test_reference_earns_the_top(self, task: Task) -> None:
        """Reference answers are judged right; at least one problem has one."""
        judged = 0
        for problem in task.problems("all"):
            reference = reference_of(task, problem)
            if reference is None:
                continue
            outcome = await self._judge(problem, reference)
            assert isinstance(outcome, Reward), f"a reference is judged {outcome!r:.80}"
            answer = _squeeze(" ".join(_texts(reference)))
            short = answer if len(answer) <= 60 else f"{answer[:60]}..."
            of = f"the reference of {problem.id!r}, {short!r}, is judged"
            wrong = f"{of} score01 = {outcome.score01:g}, not 1, with which an answer passes; look "
            wrong += "at what the reward takes out of the answer, and what it compares that with"
            assert outcome.score01 == 1.0, wrong
            if math.isfinite(self.top):
                wrong = f"{of} value = {outcome.value:g}, not {self.top:g}, the top of its bounds"
                assert outcome.value == pytest.approx(self.top), wrong
            judged += 1
            if judged == self.max_judged:
                break
        if not judged:
            pytest.skip("the task holds no reference answers")

    @on_open("make_task")
    async def test_empty_and_senseless_answers_earn_the_bottom(self, task: Task) -> None:
        """The empty answer and nonsense never earn more than the lowest value."""
        for problem in islice(task.problems("all"), self.max_judged):
            for answer in ("", GARBAGE):
                outcome = await self._judge(problem, Trajectory.from_text(problem.id, answer))
                if isinstance(outcome, Reward):
                    of = f"the answer {answer!r} to {problem.id!r} is judged"
                    assert outcome.score01 < 1.0, f"{of} right (score01 = 1)"
                    wrong = f"{of} value = {outcome.value:g}, not {self.bottom:g}"
                    is_lowest = outcome.value == pytest.approx(self.bottom)
                    assert is_lowest, f"{wrong}, the bottom of its bounds"

    @on_open("make_task")
    async def test_few_references_are_right_elsewhere(self, task: Task) -> None:
        """That all are right as answers to another problem breaks no promise: it is a warning."""
        await self._warn_of_form_alone(task)

    # --- helpers --------------------------------------------------------------------------------

    async def _judge(self, problem: Problem, trajectory: Trajectory) -> Any:
        outcome = await self._verdict(problem, trajectory)
        if outcome is None:
            pytest.skip("no make_reward: references and nonsense are not judged")
        return outcome

    async def _verdict(self, problem: Problem, trajectory: Trajectory) -> Any:
        """The outcome; None without a reward."""
        self.judge = reward = self.make_reward()
        if reward is None:
            return None
        async with opened(reward) as judge:
            return await judged(judge, problem, trajectory)


def _texts(reference: Trajectory) -> list[str]:
    return [*(reference.files or {}).values(), *reference.completions]


def _squeeze(text: str) -> str:
    return " ".join(text.split())
