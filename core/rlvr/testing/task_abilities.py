"""The promises of a task's optional methods; those that it does not override are skipped."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from contextlib import aclosing, suppress
from itertools import islice, permutations
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest

from rlvr.border.abilities import annotated, figures_of, key_of, probes_of, proven
from rlvr.border.declared import overrides
from rlvr.border.promises import reference_of
from rlvr.curriculum.discovered import Growth
from rlvr.parts import Episode, EpisodeResult, Policy, RewardFn, Task
from rlvr.testing.contract import NoVerdictError, judged, on_open, opened, same
from rlvr.testing.fakes.policy import ScriptedPolicy
from rlvr.testing.process import KitWarning
from rlvr.types import Problem, Reward, Segment, Trajectory

GARBAGE = "~#@! 0110 !@#~"


class TaskAbilities:
    """A part of `TaskContract`: the methods that a task overrides give what a run can use."""

    splits: ClassVar[tuple[str, ...]]
    max_judged: ClassVar[int]
    make_reward: Callable[[], RewardFn | None]
    judge: RewardFn | None

    def make_policy(self) -> Policy:
        """The policy for `discover` and `measure`; by default it answers with nonsense."""
        return ScriptedPolicy([GARBAGE])

    async def _verdict(self, problem: Problem, trajectory: Trajectory) -> Any:
        raise NotImplementedError

    @on_open("make_task")
    async def test_annotates_each_token(self, task: Task) -> None:
        """Finite numbers (T,) by name, the same again, for answers of any length."""
        self._only_with(task, "annotate")
        for problem in islice(task.problems("all"), self.max_judged):
            for text in (GARBAGE, *self._answers(task, problem)):
                trajectory = _spoken(problem, text)
                found, again = (annotated(task, problem, trajectory) for _ in range(2))
                for name, values in found.items():
                    says = f"annotation {name} of {problem.id!r}"
                    assert np.isfinite(np.asarray(values, float)).all(), f"{says} is not finite"
                    assert np.array_equal(values, again[name]), f"{says} is another, asked again"

    @on_open("make_task")
    async def test_probes_are_answers_whose_verdict_is_known(self, task: Task) -> None:
        """More of them hold the same ones, the same seed gives the same; right ones are right."""
        self._only_with(task, "probes")
        seen = 0
        for problem in islice(task.problems("all"), self.max_judged):
            few, more, again = [
                await asyncio.to_thread(probes_of, task, problem, count=count, seed=1)
                for count in (1, 6, 6)
            ]
            assert more == again, f"{problem.id}: the same seed gave other probes"
            missing = [probe.kind for probe in few if probe not in more]
            assert not missing, f"{problem.id}: count=6 lacks probes of count=1: {missing}"
            seen += len(more)
            for probe in more:
                outcome = await self._verdict(problem, probe.trajectory) if probe.is_right else None
                if isinstance(outcome, Reward):
                    says = f"score01 of a right probe ({probe.kind}) of {problem.id!r}"
                    same(says, outcome.score01, 1.0)
        assert seen, f"no probe in the first {self.max_judged} problems"

    @on_open("make_task")
    async def test_proves_what_can_be_proven(self, task: Task) -> None:
        """True, False or None; a probe that the task calls right is never proven wrong."""
        self._only_with(task, "prove")
        for problem in islice(task.problems("all"), self.max_judged):
            for probe in await asyncio.to_thread(probes_of, task, problem, count=2, seed=1):
                found = await asyncio.to_thread(proven, task, problem, probe)
                says = f"the right probe {probe.kind} of {problem.id!r} is proven wrong"
                assert not (probe.is_right and found is False), says

    @on_open("make_task")
    async def test_discovers_by_its_arguments_alone(self, task: Task) -> None:
        """The memory is JSON and the same again; found problems have ids of their own."""
        if not task.discovers_problems:
            pytest.skip("this task discovers no problems")
        fixed = tuple(task.problems(self.splits[0]))
        kept = []
        for _ in range(2):
            growth, policy = Growth(fixed=fixed), self.make_policy()
            for step in range(2):
                await growth.grow(task, policy, seed=1, step=step)
            kept.append((growth.memory, [p.id for p in growth.found]))
            resumed = Growth.resumed(task, fixed, growth.memory)
            ids = [[p.id for p in one.found] for one in (resumed, growth)]
            same("problems found by a resumed run", *ids)
        assert kept[0] == kept[1], "the same arguments gave another memory"

    @on_open("make_task")
    async def test_measures_figures(self, task: Task) -> None:
        """One after another, each with a name of its own; the first few are looked at."""
        self._only_with(task, "measure")
        figures = figures_of(task, self.make_policy(), self.splits[-1], 1)
        async with aclosing(figures):
            for _ in range(self.max_judged):
                if (figure := await anext(figures, None)) is None:
                    break
                assert figure.name, f"a figure has no name: {figure!r:.80}"
                assert not figure.low > figure.high, f"low is above high: {figure!r:.200}"

    @on_open("make_task")
    async def test_one_answer_to_two_problems_has_two_keys(self, task: Task) -> None:
        """A stored verdict is that of its own problem, unless both judge the answer alike."""
        reward = self.make_reward()
        if reward is None or not overrides(reward, "verdict_key"):
            pytest.skip("no reward whose verdicts are stored")
        problems = list(islice(task.problems("all"), self.max_judged))
        found = [(p, answer) for p in problems if (answer := reference_of(task, p)) is not None]
        self.judge = reward
        async with opened(reward) as judge:
            for (one, answer), (other, _) in permutations(found, 2):
                cases = [(p, attrs.evolve(answer, problem_id=p.id)) for p in (one, other)]
                first, second = (key_of(judge, *case) for case in cases)
                if first is None or first != second:
                    continue
                values = [getattr(await judged(judge, *case), "score01", None) for case in cases]
                if values[0] != values[1]:  # which is no fault of the task
                    raise NoVerdictError(
                        f"the reference of {one.id!r} has one verdict_key as an answer to it and "
                        f"to {other.id!r}, where it is judged otherwise: take the problem into it"
                    )

    async def _warn_of_form_alone(self, task: Task) -> None:
        """Judge the references as answers to other problems."""
        every = ((p, reference_of(task, p)) for p in task.problems("all"))
        held = ((p, answer) for p, answer in every if answer is not None)
        # what an episode noted is of its own problem
        found = [(p, answer) for p, answer in islice(held, self.max_judged) if not answer.notes]
        taken, judged = [], 0
        for (one, own), (other, answer) in zip(found, found[1:] + found[:1], strict=True):
            if (own.completions, own.files) == (answer.completions, answer.files):
                continue
            with suppress(Exception):  # others hold the reward to its promises
                outcome = await self._verdict(one, attrs.evolve(answer, problem_id=one.id))
                judged += isinstance(outcome, Reward)
                if getattr(outcome, "score01", 0.0) == 1.0:
                    taken.append(f"that of {other.id!r} for {one.id!r}")
        if judged < 3:
            pytest.skip("no three problems whose references differ and are judged")
        if len(taken) == judged:
            warnings.warn(
                f"{judged} of {judged} references are judged right as answers to another problem, "
                f"such as {taken[0]}: if they are wrong there, the reward looks at form alone",
                KitWarning,
                stacklevel=2,
            )

    def _only_with(self, task: Task, method: str) -> None:
        if not overrides(task, method):
            pytest.skip(f"this task leaves {method} as it is")

    def _answers(self, task: Task, problem: Problem) -> list[str]:
        reference = task.reference(problem)
        return [] if reference is None else list(reference.completions)


async def play(episode: Episode, answer: str, limit: int) -> int:
    """Answer until the episode ends, or the limit is passed; gives the number of turns."""
    turns = 0
    while turns <= limit and episode.prompt() is not None:
        await episode.take(answer)
        turns += 1
    assert isinstance(episode.result(), EpisodeResult), "Episode.result() gave no EpisodeResult"
    return turns


def _spoken(problem: Problem, text: str) -> Trajectory:
    """A trajectory of a token a character, after three of a prompt."""
    tokens = list(range(len(text)))
    own = Segment(author="policy", tokens=tokens, logprobs=[-0.5] * len(tokens), text=text)
    return Trajectory(
        problem_id=problem.id, segments=(Segment(author="prompt", tokens=[1, 2, 3]), own)
    )
