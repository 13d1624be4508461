"""The promises of a sampler, as tests to inherit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import ClassVar

import numpy as np
import pytest

from rlvr.border.promises import drawer_of, reason_of, trajectories_of
from rlvr.parts import Sampler, Task
from rlvr.rollouts.group import sample_groups
from rlvr.testing.contract import Contract, check_part, close, not_given, on_open, opened, same
from rlvr.testing.fakes.policy import ScriptedPolicy
from rlvr.testing.fakes.toy import ToyEpisode, ToyTask
from rlvr.testing.process import nothing_changed
from rlvr.types import Group, Problem, SamplingParams, Trajectory

_PATIENCE_S = 5.0


class SamplerContract(Contract):
    """
    Tests of a sampler's promises. Define `make_sampler`.

    Promises about what was drawn are skipped, aloud, where `draws_from_policy` is False.
    """

    group_size: ClassVar[int] = 4

    def make_sampler(self) -> Sampler:
        """A new sampler, as its spec's target builds it."""
        raise not_given(self, "make_sampler")

    def repeatable(self) -> list[int]:
        """Seeds of the trajectories."""
        groups = self._sample(ToyTask(), _problems(), ScriptedPolicy(["b"]))
        return [trajectory.seed for group in groups for trajectory in group.trajectories]

    # --- promises -------------------------------------------------------------------------------

    def test_it_is_a_sampler(self) -> None:
        """It derives from its base class, and no name is a misspelt known one."""
        check_part(self.make_sampler(), Sampler)

    def test_it_draws_as_it_declares(self) -> None:
        """It samples from the policy; if it declares that it does not, all logprobs are zeros."""
        policy = ScriptedPolicy(["b"])
        groups = self._sample(ToyTask(), _problems(), policy)
        if self.make_sampler().draws_from_policy:
            assert policy.requests, "draws_from_policy, and nothing was asked of the policy"
        else:
            assert not policy.requests, "not draws_from_policy, and the policy was asked"
            drawn = any(t.logprobs.any() for group in groups for t in group.trajectories)
            assert not drawn, "not draws_from_policy, and logprobs are not all 0"

    def test_group_size_and_order(self) -> None:
        """One group a problem, in the order of the problems, G trajectories each, if it draws."""
        problems = _problems()
        with nothing_changed():
            groups = self._sample(ToyTask(), problems, ScriptedPolicy(["b"]))
        same("problems of the groups", [g.problem.id for g in groups], [p.id for p in problems])
        for group in groups:
            if self.make_sampler().draws_from_policy:
                same("trajectories of a group", len(group.trajectories), self.group_size)
            of = {t.problem_id for t in group.trajectories}
            same("problem_id of a group's trajectories", of, {group.problem.id})

    def test_tokens_and_logprobs_are_those_drawn(self) -> None:
        """Tokens come from the policy and are never had by tokenising text again."""
        self._only_for_drawing()
        policy = ScriptedPolicy(["hello", "bye"])
        for group in self._sample(ToyTask(), _problems(), policy):
            for trajectory in group.trajectories:
                own = [s for s in trajectory.segments if s.author == "policy"]
                same("segments of the policy in one turn", len(own), 1)
                tokens, text = own[0].tokens, own[0].text
                drawn = policy.drawn(text)
                same(f"tokens of the completion {text!r}", tokens.tolist(), drawn)
                wanted = -(np.arange(len(drawn)) + 1) / 8
                logprobs = own[0].logprobs
                assert logprobs is not None, "the policy's segment has no logprobs"
                close("logprobs of the tokens drawn", logprobs, wanted.astype(np.float32), 0.0)

    def test_prompt_comes_first_and_is_not_the_policys(self) -> None:
        """A trajectory begins with its rendered prompt, outside the mask."""
        self._only_for_drawing()
        policy = ScriptedPolicy(["b"])
        for group in self._sample(ToyTask(), _problems(), policy):
            prompt = policy.tokenizer.render(group.problem.prompt)
            for trajectory in group.trajectories:
                first, mask = trajectory.segments[0], trajectory.mask.tolist()
                same("author of the first segment", first.author, "prompt")
                same("tokens of the prompt", first.tokens.tolist(), prompt)
                wanted = [place >= len(prompt) for place in range(len(mask))]
                same("mask, true at the policy's tokens", mask, wanted)

    def test_several_turns_keep_who_wrote_what(self) -> None:
        """In a three-turn episode the environment's words are neither prompt nor the policy's."""
        self._only_for_drawing()
        policy = ScriptedPolicy(["b"])
        for group in self._sample(ToyTask(), _problems(turns=3), policy):
            for trajectory in group.trajectories:
                authors = [segment.author for segment in trajectory.segments]
                wanted = ["prompt", "policy", "env", "policy", "env", "policy"]
                same("authors of the segments in three turns", authors, wanted)
                same("completions of three turns", trajectory.completions, ("b", "b", "b"))
                again = policy.tokenizer.encode("again")
                same("tokens of the task's words", trajectory.segments[2].tokens.tolist(), again)

    def test_later_turns_continue_what_was_drawn(self) -> None:
        """The second turn's prompt begins with the very tokens of the first turn."""
        self._only_for_drawing()
        policy = ScriptedPolicy(["hello"])
        self._sample(ToyTask(), _problems(turns=2)[:1], policy)
        first = [r.prompt.tolist() for r in policy.requests if r.prompt.size == 1]
        second = [r.prompt.tolist() for r in policy.requests if r.prompt.size > 1]
        same("requests of first and second turns", [len(first), len(second)], [self.group_size] * 2)
        start = first[0] + policy.drawn("hello")
        for prompt in second:
            same("begin of the second turn's prompt", prompt[: len(start)], start)

    def test_records_who_sampled_and_how(self) -> None:
        """Version, digest and temperature of the policy stand in every trajectory."""
        self._only_for_drawing()
        policy = ScriptedPolicy(["b"], version=7, digest="abc")
        for group in self._sample(ToyTask(), _problems(), policy, temperature=0.7):
            for trajectory in group.trajectories:
                same("policy_version of a trajectory", trajectory.policy_version, 7)
                same("policy_digest of a trajectory", trajectory.policy_digest, "abc")
                same("temperature of a trajectory", trajectory.temperature, 0.7)

    def test_seeds_differ_and_repeat(self) -> None:
        """No two rollouts share a seed; a new sampler with the same seed draws the same."""
        self._only_for_drawing()
        policy = ScriptedPolicy(lambda _prompt, seed: str(seed))
        first = self._sample(ToyTask(), _problems(), policy)
        seeds = [t.seed for group in first for t in group.trajectories]
        assert len(set(seeds)) == len(seeds), f"rollouts share a seed: {seeds}"
        again = self._sample(ToyTask(), _problems(), policy)
        assert again == first, "a new sampler with the same seed gives other groups"
        other = self._sample(ToyTask(), _problems(), policy, seed=1)
        both = set(seeds) & {t.seed for group in other for t in group.trajectories}
        assert not both, f"seeds of a run are those of a run with another seed: {sorted(both)}"

    def test_truncated_completions_say_so(self) -> None:
        """A completion cut at `max_tokens` finishes with "length", a complete one with "stop"."""
        self._only_for_drawing()
        for text, finish in (("hello", "length"), ("b", "stop")):
            groups = self._sample(ToyTask(), _problems(), ScriptedPolicy([text]), max_tokens=3)
            found = {t.finish for group in groups for t in group.trajectories}
            same(f"finish of the completion {text!r}, cut at 3 tokens", found, {finish})

    def test_one_failure_does_not_sink_a_group(self) -> None:
        """An episode that raises ends with finish "error" and says why; the others are whole."""
        self._only_for_drawing()
        task = _FailingTask()
        groups = self._sample(task, _problems(), ScriptedPolicy(["b"]))
        trajectories = [t for group in groups for t in group.trajectories]
        sizes = [len(group.trajectories) for group in groups]
        same("trajectories by group, of which one failed", sizes, [self.group_size] * len(groups))
        failed = [t for t in trajectories if t.finish == "error"]
        same('trajectories that finish with "error"', len(failed), 1)
        says = f"error of the failed trajectory is {failed[0].error!r}, without what was raised"
        assert "the board caught fire" in failed[0].error, says

    @on_open("make_sampler")
    async def test_trajectories_come_as_they_end(self, sampler: Sampler) -> None:
        """A rollout whose tool is slow holds back no other one of its group."""
        self._only_for_drawing()
        task, found = _WaitingTask(), []
        task.gate = asyncio.Event()
        async with asyncio.timeout(_PATIENCE_S):
            async for trajectory in self._stream(sampler, task):
                found.append(trajectory.index)
                if len(found) == self.group_size - 1:
                    task.gate.set()
        same("indices of the trajectories", sorted(found), list(range(self.group_size)))

    @on_open("make_sampler")
    async def test_nothing_is_left_running(self, sampler: Sampler) -> None:
        """When the caller asks for no more trajectories, the rest of the group is ended."""
        self._only_for_drawing()
        task = _WaitingTask()
        task.gate = asyncio.Event()
        async with aclosing(self._stream(sampler, task)) as stream:
            await asyncio.wait_for(anext(stream), _PATIENCE_S)
        says = "a rollout of the group goes on: where `sample` iterates over super().sample(...), "
        says += "put it into `async with contextlib.aclosing(...)`"
        assert task.waiting == 0, says

    @on_open("make_sampler")
    async def test_says_who_draws_and_why_nothing_came(self, sampler: Sampler) -> None:
        """`drawn_by` gives a policy, and `why_empty` a text."""
        await drawer_of(sampler, ScriptedPolicy(["b"]))
        reason_of(sampler, "why_empty")

    # --- helpers --------------------------------------------------------------------------------

    def _sample(
        self,
        task: Task,
        problems: Sequence[Problem],
        policy: ScriptedPolicy,
        *,
        max_tokens: int = 64,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> list[Group]:
        async def sample() -> list[Group]:
            async with opened(self.make_sampler()) as sampler:
                params = SamplingParams(
                    max_tokens=max_tokens,
                    temperature=temperature,
                    group_size=self.group_size,
                    seed=seed,
                )
                return await sample_groups(sampler, policy, task, problems, params)

        return asyncio.run(sample())

    def _stream(self, sampler: Sampler, task: Task) -> AsyncGenerator[Trajectory]:
        params = SamplingParams(max_tokens=64, group_size=self.group_size)
        return trajectories_of(sampler, ScriptedPolicy(["b"]), task, _problems()[0], params)

    def _only_for_drawing(self) -> None:
        if not self.make_sampler().draws_from_policy:
            pytest.skip("this sampler does not draw from the policy (draws_from_policy is False)")


class _WaitingTask(ToyTask):
    """The toy task, whose first episode waits for the gate when it takes its completion."""

    gate: asyncio.Event
    waiting = 0
    _opened = 0

    def episode(self, problem: Problem) -> ToyEpisode:
        self._opened += 1
        return _Troubled(problem, self._wait) if self._opened == 1 else ToyEpisode(problem)

    async def _wait(self) -> None:
        self.waiting += 1
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1


class _FailingTask(ToyTask):
    """The toy task, whose second episode raises when it takes its completion."""

    _opened = 0

    def episode(self, problem: Problem) -> ToyEpisode:
        self._opened += 1
        return _Troubled(problem, self._fail) if self._opened == 2 else ToyEpisode(problem)

    async def _fail(self) -> None:
        raise RuntimeError("the board caught fire")


class _Troubled(ToyEpisode):
    def __init__(self, problem: Problem, trouble: Callable[[], Awaitable[None]]) -> None:
        super().__init__(problem)
        self._trouble = trouble

    async def take(self, completion: str) -> None:
        await self._trouble()
        await super().take(completion)


def _problems(turns: int = 1) -> list[Problem]:
    return list(ToyTask(turns).problems("train"))[:3]
