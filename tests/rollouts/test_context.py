"""Prompts longer than the model's context: cut in the middle and counted, or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from rlvr import (
    ConfigError,
    Group,
    Message,
    Problem,
    Reward,
    SamplingParams,
    ScoredGroup,
    SingleTurn,
)
from rlvr.rollouts.group import GroupSampler, sample_groups
from rlvr.testing.fakes import ScriptedPolicy, ToyTask
from rlvr.training import metrics


class Asking(ToyTask):
    """Two questions: one of four letters, one of forty."""

    def problems(self, split: str) -> Iterable[Problem]:
        for text in ("abcd", "abcdefghij" * 4):
            yield Problem(id=text, prompt=(Message(role="user", content=text),))

    def episode(self, problem: Problem) -> Any:
        return SingleTurn(problem.prompt)


def sample(policy: ScriptedPolicy, max_tokens: int) -> list[Group]:
    task, params = Asking(), SamplingParams(max_tokens=max_tokens, group_size=2)
    problems = list(task.problems("train"))
    return asyncio.run(sample_groups(GroupSampler(), policy, task, problems, params))


def test_a_prompt_that_does_not_fit_loses_its_middle_and_is_counted() -> None:
    """Context 20, eight for the answer: twelve tokens of the prompt stay, half of them its end."""
    policy = ScriptedPolicy(["ok"], context_length=20)
    short, long = sample(policy, max_tokens=8)
    whole = len(ScriptedPolicy().tokenizer.render([Message(role="user", content="abcdefghij" * 4)]))

    assert [t.prompt_cut for t in short.trajectories] == [0, 0]
    assert [t.prompt_cut for t in long.trajectories] == [whole - 12] * 2
    prompt = long.trajectories[0].segments[0].tokens
    assert len(prompt) == 12
    groups = [
        ScoredGroup(
            problem=group.problem,
            trajectories=group.trajectories,
            outcomes=[Reward(value=0.0, score01=0.0)] * 2,
        )
        for group in (short, long)
    ]
    assert metrics.of_groups(groups)["sampler/prompts_cut"] == 0.5


@pytest.mark.parametrize("max_tokens", [19, 20, 500])
def test_completions_that_leave_no_room_for_a_prompt_are_refused(max_tokens: int) -> None:
    """Before anything is sampled, rather than a run of empty trajectories."""
    policy = ScriptedPolicy(["ok"], context_length=20)

    with pytest.raises(ConfigError, match=r"sampler.max_tokens(.|\n)*context holds 20"):
        sample(policy, max_tokens)

    assert policy.requests == []


def test_two_tokens_of_a_prompt_are_room_enough() -> None:
    """The bound itself is allowed."""
    (short, _) = sample(ScriptedPolicy(["ok"], context_length=20), max_tokens=18)

    assert [len(t.segments[0].tokens) for t in short.trajectories] == [2, 2]
