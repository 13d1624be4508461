"""SamplerContract passes on a right sampler, and finds each planted fault."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import attrs
import numpy as np
import pytest

from rlvr import BuildContext, Policy, Problem, SamplingParams, Segment, Task, Trajectory
from rlvr.rollouts.group import GroupSampler
from rlvr.rollouts.references import ReferenceSampler
from rlvr.rollouts.rollout import rollout
from rlvr.testing import SamplerContract
from rlvr.testing.contract import Contract

Broken = Callable[[type[Contract]], set[str]]


class Changed(GroupSampler):
    """The built-in sampler with one thing wrong."""

    async def sample(
        self, policy: Policy, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        async for trajectory in super().sample(policy, task, problem, params):
            yield self.change(trajectory, policy)

    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        return trajectory


def with_segments(trajectory: Trajectory, change: Callable[[Segment], Segment]) -> Trajectory:
    """The trajectory with each of the policy's segments changed."""
    return attrs.evolve(
        trajectory,
        segments=tuple(change(s) if s.author == "policy" else s for s in trajectory.segments),
    )


class TokenisesAgain(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        def again(segment: Segment) -> Segment:
            tokens = [*policy.tokenizer.encode(segment.text), policy.tokenizer.eos_id]
            return attrs.evolve(segment, tokens=tokens[: len(segment.tokens)])

        return with_segments(trajectory, again)


class InventsLogprobs(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        return with_segments(
            trajectory, lambda s: attrs.evolve(s, logprobs=np.zeros(len(s.tokens)) - 1)
        )


class SaysItDrawsNothing(GroupSampler):
    draws_from_policy = False


class MakesUpReferences(ReferenceSampler):
    """Nothing is asked of the policy, and the text has logprobs all the same."""

    def __init__(self) -> None:
        super().__init__(None, BuildContext())

    async def sample(
        self, policy: Policy, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        async for trajectory in super().sample(policy, task, problem, params):
            yield with_segments(
                trajectory, lambda s: attrs.evolve(s, logprobs=np.zeros(len(s.tokens)) - 1)
            )


class TrainsOnTheEnvironment(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        segments = [
            attrs.evolve(s, author="policy", logprobs=np.zeros(len(s.tokens)))
            if s.author == "env"
            else s
            for s in trajectory.segments
        ]
        return attrs.evolve(trajectory, segments=segments)


class ForgetsThePrompt(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        return attrs.evolve(trajectory, segments=trajectory.segments[1:])


class ForgetsWhoSampled(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        return attrs.evolve(trajectory, policy_version=0)


class SameSeeds(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        return attrs.evolve(trajectory, seed=1)


class NeverTruncates(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        return attrs.evolve(trajectory, finish="stop")


class Unplaced(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        return attrs.evolve(trajectory, index=0)


class OfAnother(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        return attrs.evolve(trajectory, problem_id="another")


class OneTooFew(GroupSampler):
    async def sample(
        self, policy: Policy, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        fewer = attrs.evolve(params, group_size=params.group_size - 1)
        async for trajectory in super().sample(policy, task, problem, fewer):
            yield trajectory


class IgnoresTheSeed(GroupSampler):
    async def sample(
        self, policy: Policy, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        same = attrs.evolve(params, seed=0)
        async for trajectory in super().sample(policy, task, problem, same):
            yield trajectory


class Sinks(GroupSampler):
    """Gives nothing where a rollout failed."""

    async def sample(
        self, policy: Policy, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        found = [t async for t in super().sample(policy, task, problem, params)]
        for trajectory in found if all(t.finish != "error" for t in found) else []:
            yield trajectory


class WaitsForAll(GroupSampler):
    async def sample(
        self, policy: Policy, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        for trajectory in [t async for t in super().sample(policy, task, problem, params)]:
            yield trajectory


class LeavesThemRunning(GroupSampler):
    async def sample(
        self, policy: Policy, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        work = [
            asyncio.create_task(rollout(policy, task, problem, params, index=index))
            for index in range(params.group_size)
        ]
        for ended in asyncio.as_completed(work):
            yield await ended


class Lists(GroupSampler):
    """As samplers were in the first edition."""

    async def sample(self, *asked: Any) -> Any:
        return [t async for t in super().sample(*asked)]


def contract_of(sampler: type) -> type[SamplerContract]:
    """The contract on that sampler."""

    class Case(SamplerContract):
        def make_sampler(self) -> Any:
            return sampler()

    return Case


@pytest.mark.parametrize(
    ("sampler", "promise"),
    [
        (Unplaced, "group_size_and_order"),
        (OfAnother, "group_size_and_order"),
        (Lists, "group_size_and_order"),
        (OneTooFew, "group_size_and_order"),
        (TokenisesAgain, "tokens_and_logprobs_are_those_drawn"),
        (InventsLogprobs, "tokens_and_logprobs_are_those_drawn"),
        (TrainsOnTheEnvironment, "several_turns_keep_who_wrote_what"),
        (SaysItDrawsNothing, "it_draws_as_it_declares"),
        (MakesUpReferences, "it_draws_as_it_declares"),
        (ForgetsThePrompt, "prompt_comes_first_and_is_not_the_policys"),
        (ForgetsWhoSampled, "records_who_sampled_and_how"),
        (SameSeeds, "seeds_differ_and_repeat"),
        (IgnoresTheSeed, "seeds_differ_and_repeat"),
        (NeverTruncates, "truncated_completions_say_so"),
        (Sinks, "one_failure_does_not_sink_a_group"),
        (WaitsForAll, "trajectories_come_as_they_end"),
        (LeavesThemRunning, "nothing_is_left_running"),
    ],
)
def test_faults_are_found(
    sampler: type, promise: str, broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each planted fault fails the test whose promise it breaks; the kit waits shortly for it."""
    monkeypatch.setattr("rlvr.testing.sampler._PATIENCE_S", 0.5)
    assert promise in broken(contract_of(sampler))
