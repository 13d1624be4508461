"""The group sampler with a policy whose weights change under it."""

from __future__ import annotations

import asyncio

import pytest

from rlvr import Completion, GenerateRequest, Policy, SamplingParams
from rlvr.rollouts.group import GroupSampler, sample_groups
from rlvr.testing.fakes import TinyBackend, ToyTask


class Live(Policy):
    """A policy that is updated with every call; a completion begins with the version before."""

    context_length = 16

    def __init__(self) -> None:
        self.tokenizer = asyncio.run(TinyBackend(seed=1).policy()).tokenizer
        self.version = 3

    @property
    def digest(self) -> str:  # type: ignore[override]
        return f"digest-{self.version}"

    async def generate(self, request: GenerateRequest) -> Completion:
        self.version += 1
        versions = (self.version - 1, self.version)
        return Completion(
            tokens=[1, 2], logprobs=[-1.0, -1.0], text="x", finish="stop", versions=versions
        )


@pytest.mark.parametrize("turns", [1, 2])
def test_a_trajectory_names_all_versions_and_the_digest_of_the_oldest(turns: int) -> None:
    """Version and digest belong together, over several turns too."""
    task = ToyTask(turns=turns)
    problems = list(task.problems("train"))[:2]
    groups = asyncio.run(
        sample_groups(
            GroupSampler(), Live(), task, problems, SamplingParams(max_tokens=2, group_size=2)
        )
    )
    trajectories = [t for g in groups for t in g.trajectories]
    for number, trajectory in enumerate(trajectories):  # here, one rollout after the other
        first = 3 + number * turns
        assert trajectory.policy_version == first
        assert trajectory.policy_digest == f"digest-{first}"
        assert trajectory.policy_versions == tuple(range(first, first + 1 + turns))


class Still(Live):
    """The same, whose weights stay."""

    async def generate(self, request: GenerateRequest) -> Completion:
        versions = (self.version,)
        return Completion(
            tokens=[1, 2], logprobs=[-1.0, -1.0], text="x", finish="stop", versions=versions
        )


def test_a_single_version_is_no_list_of_versions() -> None:
    """So files of trajectories name several only where there were several."""
    task = ToyTask(turns=2)
    problems, params = list(task.problems("train"))[:1], SamplingParams(max_tokens=2, group_size=2)
    groups = asyncio.run(sample_groups(GroupSampler(), Still(), task, problems, params))
    for trajectory in groups[0].trajectories:
        assert (trajectory.policy_version, trajectory.policy_versions) == (3, ())
