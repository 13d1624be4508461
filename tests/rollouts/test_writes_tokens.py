"""Episodes that make their own token ids."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from rlvr import Completion, ConfigError, Episode, Group, Message, Problem, SamplingParams
from rlvr.rollouts.group import GroupSampler, sample_groups
from rlvr.testing.fakes import ScriptedPolicy, ToyTask

PARAMS = SamplingParams(max_tokens=64, group_size=2, stop=("!",))


class Spelled(Episode):
    """Gives the ids of "a=", later those of "b="; keeps what it was given."""

    writes_tokens = True

    def __init__(self, turns: Sequence[Any] = ("a=", "b=")) -> None:
        self._turns = list(turns)
        self.taken: list[Completion] = []
        self.encode: Any = None

    def prompt(self) -> Sequence[Message] | None:
        raise AssertionError("an episode of tokens is not asked for messages")

    async def take(self, completion: str) -> None:
        raise AssertionError("an episode of tokens is not given text")

    def start(self, tokenizer: Any) -> None:
        self.encode = tokenizer.encode

    async def next_tokens(self) -> Sequence[int] | None:
        await asyncio.sleep(0)
        if not self._turns:
            return None
        turn = self._turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        return list(self.encode(turn))

    async def take_tokens(self, completion: Completion) -> None:
        self.taken.append(completion)

    def stop_texts(self) -> Sequence[str]:
        return ("?",)


class Tasked(ToyTask):
    """The toy task with such episodes, which it keeps."""

    def __init__(self, *turns: Any) -> None:
        super().__init__()
        self._turns = turns or ("a=", "b=")
        self.played: list[Spelled] = []

    def episode(self, problem: Problem) -> Any:
        self.played.append(Spelled(self._turns))
        return self.played[-1]


def sample(task: Tasked, policy: ScriptedPolicy) -> Group:
    problem = next(iter(task.problems("train")))
    return asyncio.run(sample_groups(GroupSampler(), policy, task, [problem], PARAMS))[0]


def test_episodes_of_tokens_are_told_apart() -> None:
    """An episode of messages is not taken for one of tokens."""
    task = ToyTask()
    assert Spelled().writes_tokens
    assert not task.episode(next(iter(task.problems("train")))).writes_tokens


def test_tokens_reach_the_policy_and_come_back_as_they_are() -> None:
    """Neither prompt nor answer is rendered or encoded again on the way."""
    task, policy = Tasked(), ScriptedPolicy(["xyz", "uv"])
    group = sample(task, policy)
    encode = policy.tokenizer.encode
    for episode, trajectory in zip(task.played, group.trajectories, strict=True):
        assert [s.author for s in trajectory.segments] == ["prompt", "policy", "env", "policy"]
        assert [s.text for s in trajectory.segments[::2]] == ["a=", "b="]
        for taken, segment in zip(episode.taken, trajectory.segments[1::2], strict=True):
            assert taken.tokens.tolist() == segment.tokens.tolist()
            assert taken.tokens.tolist() == policy.drawn(segment.text)
        first, policys = trajectory.segments[0], trajectory.segments[1]
        assert first.tokens.tolist() == encode("a=")
        later = [r.prompt.tolist() for r in policy.requests[2:]]
        assert [*encode("a="), *policys.tokens.tolist(), *encode("b=")] in later


def test_stop_texts_are_the_episodes_and_the_runs() -> None:
    """The policy's turn ends at either."""
    task, policy = Tasked("a="), ScriptedPolicy(["so? no"])
    group = sample(task, policy)
    assert {request.params.stop for request in policy.requests} == {("!", "?")}
    assert [t.completion for t in group.trajectories] == ["so", "so"]


def test_one_that_raises_ends_alone() -> None:
    """A broken environment sinks its own rollout; one without any prompt has no answer."""
    task, policy = Tasked("a=", RuntimeError("broken")), ScriptedPolicy(["x"])
    group = sample(task, policy)
    assert {t.finish for t in group.trajectories} == {"error"}
    assert "broken" in group.trajectories[0].error


def test_a_persons_mistake_stops_the_run() -> None:
    """What is wrong for every rollout is raised."""
    task = Tasked(ConfigError("no such renderer"))
    with pytest.raises(ConfigError, match="no such renderer"):
        sample(task, ScriptedPolicy(["x"]))
