"""SamplerContract passes on a right sampler, and finds each planted fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import pytest

from rlvr import Group, Policy, Problem, SamplingParams, Segment, Task, Trajectory
from rlvr.rollouts.group import GroupSampler
from rlvr.testing import SamplerContract
from rlvr.testing.contract import Contract

Broken = Callable[[type[Contract]], set[str]]


class Changed(GroupSampler):
    """The built-in sampler with one thing wrong."""

    async def sample(
        self, policy: Policy, task: Task, problems: Sequence[Problem], params: SamplingParams
    ) -> list[Group]:
        groups = await super().sample(policy, task, problems, params)
        return [
            attrs.evolve(
                group, trajectories=tuple(self.change(t, policy) for t in group.trajectories)
            )
            for group in groups
        ]

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


class Rearranged(GroupSampler):
    async def sample(
        self, policy: Policy, task: Task, problems: Sequence[Problem], params: SamplingParams
    ) -> list[Group]:
        return (await super().sample(policy, task, problems, params))[::-1]


class OneTooFew(GroupSampler):
    async def sample(
        self, policy: Policy, task: Task, problems: Sequence[Problem], params: SamplingParams
    ) -> list[Group]:
        fewer = attrs.evolve(params, group_size=params.group_size - 1)
        return await super().sample(policy, task, problems, fewer)


class IgnoresTheSeed(GroupSampler):
    async def sample(
        self, policy: Policy, task: Task, problems: Sequence[Problem], params: SamplingParams
    ) -> list[Group]:
        return await super().sample(policy, task, problems, attrs.evolve(params, seed=0))


class Sinks(GroupSampler):
    """Drops every group in which a rollout failed."""

    async def sample(
        self, policy: Policy, task: Task, problems: Sequence[Problem], params: SamplingParams
    ) -> list[Group]:
        groups = await super().sample(policy, task, problems, params)
        return [g for g in groups if all(t.finish != "error" for t in g.trajectories)]


def contract_of(sampler: type) -> type[SamplerContract]:
    """The contract on that sampler."""

    class Case(SamplerContract):
        def make_sampler(self) -> Any:
            return sampler()

    return Case


@pytest.mark.parametrize(
    ("sampler", "promise"),
    [
        (Rearranged, "group_size_and_order"),
        (OneTooFew, "group_size_and_order"),
        (TokenisesAgain, "tokens_and_logprobs_are_those_drawn"),
        (InventsLogprobs, "tokens_and_logprobs_are_those_drawn"),
        (TrainsOnTheEnvironment, "several_turns_keep_who_wrote_what"),
        (ForgetsThePrompt, "prompt_comes_first_and_is_not_the_policys"),
        (ForgetsWhoSampled, "records_who_sampled_and_how"),
        (SameSeeds, "seeds_differ_and_repeat"),
        (IgnoresTheSeed, "seeds_differ_and_repeat"),
        (NeverTruncates, "truncated_completions_say_so"),
        (Sinks, "one_failure_does_not_sink_a_group"),
    ],
)
def test_faults_are_found(sampler: type, promise: str, broken: Broken) -> None:
    """Each planted fault fails the test whose promise it breaks."""
    assert promise in broken(contract_of(sampler))
