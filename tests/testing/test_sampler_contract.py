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
from tests.testing.conftest import Broken, Faults

breaks = Faults()


class Changed(GroupSampler):
    """The built-in sampler with one thing wrong."""

    async def sample(
        self, policy: Policy, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        async for trajectory in super().sample(policy, task, problem, self.asked(params)):
            yield self.change(trajectory, policy)

    def asked(self, params: SamplingParams) -> SamplingParams:
        return params

    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        return trajectory


def with_segments(trajectory: Trajectory, change: Callable[[Segment], Segment]) -> Trajectory:
    """The trajectory with each of the policy's segments changed."""
    return attrs.evolve(
        trajectory,
        segments=tuple(change(s) if s.author == "policy" else s for s in trajectory.segments),
    )


def with_logprobs(trajectory: Trajectory) -> Trajectory:
    """The trajectory with made-up logprobs of the policy's tokens."""
    return with_segments(
        trajectory, lambda s: attrs.evolve(s, logprobs=np.zeros(len(s.tokens)) - 1)
    )


@breaks("tokens_and_logprobs_are_those_drawn")
class TokenisesAgain(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        def again(segment: Segment) -> Segment:
            tokens = [*policy.tokenizer.encode(segment.text), policy.tokenizer.eos_id]
            return attrs.evolve(segment, tokens=tokens[: len(segment.tokens)])

        return with_segments(trajectory, again)


@breaks("tokens_and_logprobs_are_those_drawn")
class InventsLogprobs(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        return with_logprobs(trajectory)


@breaks("it_draws_as_it_declares")
class SaysItDrawsNothing(GroupSampler):
    draws_from_policy = False


@breaks("it_draws_as_it_declares")
class MakesUpReferences(ReferenceSampler):
    """Nothing is asked of the policy, and the text has logprobs all the same."""

    def __init__(self) -> None:
        super().__init__(None, BuildContext())

    async def sample(self, *asked: Any) -> AsyncGenerator[Trajectory]:
        async for trajectory in super().sample(*asked):
            yield with_logprobs(trajectory)


@breaks("several_turns_keep_who_wrote_what")
class TrainsOnTheEnvironment(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        segments = [
            attrs.evolve(s, author="policy", logprobs=np.zeros(len(s.tokens)))
            if s.author == "env"
            else s
            for s in trajectory.segments
        ]
        return attrs.evolve(trajectory, segments=segments)


@breaks("prompt_comes_first_and_is_not_the_policys")
class ForgetsThePrompt(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        return attrs.evolve(trajectory, segments=trajectory.segments[1:])


@breaks("records_who_sampled_and_how")
class ForgetsWhoSampled(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        return attrs.evolve(trajectory, policy_version=0)


@breaks("seeds_differ_and_repeat")
class SameSeeds(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        return attrs.evolve(trajectory, seed=1)


@breaks("says_who_draws_and_why_nothing_came")
class DrawsWithNothing(GroupSampler):
    async def drawn_by(self, policy: Policy) -> Any:
        return None


@breaks("says_who_draws_and_why_nothing_came")
class GivesNoReason(GroupSampler):
    def why_empty(self) -> Any:
        return None


@breaks("truncated_completions_say_so")
class NeverTruncates(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        return attrs.evolve(trajectory, finish="stop")


@breaks("group_size_and_order")
class Unplaced(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        return attrs.evolve(trajectory, index=0)


@breaks("group_size_and_order")
class OfAnother(Changed):
    def change(self, trajectory: Trajectory, policy: Policy) -> Trajectory:
        return attrs.evolve(trajectory, problem_id="another")


@breaks("group_size_and_order")
class OneTooFew(Changed):
    def asked(self, params: SamplingParams) -> SamplingParams:
        return attrs.evolve(params, group_size=params.group_size - 1)


@breaks("seeds_differ_and_repeat")
class IgnoresTheSeed(Changed):
    def asked(self, params: SamplingParams) -> SamplingParams:
        return attrs.evolve(params, seed=0)


@breaks("one_failure_does_not_sink_a_group")
class Sinks(GroupSampler):
    """Gives nothing where a rollout failed."""

    async def sample(self, *asked: Any) -> AsyncGenerator[Trajectory]:
        found = [t async for t in super().sample(*asked)]
        for trajectory in found if all(t.finish != "error" for t in found) else []:
            yield trajectory


@breaks("trajectories_come_as_they_end")
class WaitsForAll(GroupSampler):
    async def sample(self, *asked: Any) -> AsyncGenerator[Trajectory]:
        for trajectory in [t async for t in super().sample(*asked)]:
            yield trajectory


@breaks("nothing_is_left_running")
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


@breaks("group_size_and_order")
class Lists(GroupSampler):
    """As samplers were in the first edition."""

    async def sample(self, *asked: Any) -> Any:
        return [t async for t in super().sample(*asked)]


@pytest.mark.parametrize(("sampler", "promise"), breaks.cases)
def test_faults_are_found(
    sampler: type, promise: str, broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each planted fault fails the test whose promise it breaks; the kit waits shortly for it."""
    monkeypatch.setattr("rlvr.testing.sampler._PATIENCE_S", 0.5)
    assert promise in broken(SamplerContract, promise, make_sampler=sampler)
