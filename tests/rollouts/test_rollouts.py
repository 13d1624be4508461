"""The rollout as the unit: its verification begins when it ends, and nobody waits for another."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rlvr import (
    Episode,
    Message,
    Policy,
    Problem,
    Reward,
    RewardFn,
    SamplingParams,
    Trajectory,
    UnsupportedError,
    sample_groups,
)
from rlvr.rollouts.group import GroupSampler, scored_groups
from rlvr.testing.fakes import ScriptedPolicy, ToyTask
from rlvr.verification.runner import VerificationRunner
from rlvr.verification.slots import LAST, Slots

PARAMS = SamplingParams(max_tokens=64, group_size=4)


class Noting(RewardFn):
    """Notes what it judges and when; each verdict takes a moment."""

    def __init__(self, seconds: float = 0.0, expected: Mapping[str, float] | None = None) -> None:
        self.seconds, self.expected = seconds, expected or {}
        self.begun: list[str] = []
        self.ended: list[str] = []

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
        self.begun.append(trajectory.completion)
        await asyncio.sleep(self.seconds)
        self.ended.append(trajectory.completion)
        return Reward(value=0.0, score01=0.0)

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        return None

    def expected_seconds(self, problem: Problem, trajectory: Trajectory) -> float:
        return self.expected.get(trajectory.completion, 0.0)


class Slow(Episode):
    """`turns` turns; each completion is taken after so many seconds."""

    def __init__(self, problem: Problem, seconds: Sequence[float]) -> None:
        self._problem, self._seconds = problem, list(seconds)
        self._is_first = True

    def prompt(self) -> Sequence[Message] | None:
        if not self._seconds:
            return None
        return self._problem.prompt if self._is_first else (Message(role="user", content="on"),)

    async def take(self, completion: str) -> None:
        self._is_first = False
        await asyncio.sleep(self._seconds.pop(0))


class Slowly(ToyTask):
    """The toy task with episodes whose seconds are those of `plan`, one after the other."""

    def __init__(self, plan: Any) -> None:
        super().__init__()
        self._plan = plan

    def episode(self, problem: Problem) -> Any:
        return Slow(problem, next(self._plan))


def test_a_verification_begins_when_its_own_rollout_ends() -> None:
    """All other verdicts are there when the last rollout ends."""
    reward = Noting()
    runner = VerificationRunner(reward=reward, salt=None, workers=2)
    task = Slowly(itertools.chain([[0.3]], itertools.repeat([0.0])))
    problems = list(task.problems("train"))[:2]
    seen: list[int] = []

    async def main() -> list[Any]:
        return await scored_groups(
            GroupSampler(),
            ScriptedPolicy(lambda _prompt, seed: str(seed)),
            task,
            problems,
            PARAMS,
            runner,
            sampled=lambda: seen.append(len(reward.ended)),
        )

    groups = asyncio.run(main())
    assert seen == [7]
    assert len(reward.ended) == 8
    assert [group.problem.id for group in groups] == [problem.id for problem in problems]
    for group in groups:
        assert [t.index for t in group.trajectories] == [0, 1, 2, 3]
        assert len(group.outcomes) == 4


def test_those_that_wait_begin_in_the_order_of_their_ranks_then_the_longest_first() -> None:
    """Ranks are (step, ticket); what is expected to take longest begins first in each."""
    reward = Noting(0.001, expected={"b": 5.0, "d": 1.0})
    runner = VerificationRunner(reward=reward, salt=None, workers=1)
    (problem, *_) = ToyTask().problems("train")
    asked = [("a", (9, 9)), ("c", (1, 1)), ("d", (1, 0)), ("b", (1, 0)), ("e", (0, 7))]

    async def main() -> None:
        tasks = [
            runner.begin(problem, Trajectory.from_text(problem.id, t), rank=r) for t, r in asked
        ]
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert reward.begun == ["e", "b", "d", "c", "a"]


@pytest.mark.parametrize("seed", range(20))
def test_slots_are_never_lost_nor_given_twice(seed: int) -> None:
    """Whoever waits, holds or is handed a slot may be cancelled at any moment."""
    rng = random.Random(seed)
    slots, now, most = Slots(count=3), 0, 0

    async def one() -> None:
        nonlocal now, most
        await asyncio.sleep(rng.random() / 50)
        async with slots.taken(LAST if rng.random() < 0.2 else (rng.random(),)):
            now += 1
            most = max(most, now)
            try:
                await asyncio.sleep(rng.random() / 100)
            finally:
                now -= 1

    async def main() -> None:
        tasks = [asyncio.create_task(one()) for _ in range(60)]
        for task in tasks:
            if rng.random() < 0.5:
                await asyncio.sleep(rng.random() / 500)
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (now, most) == (0, 3)
        async with slots.taken(()), slots.taken(()), slots.taken(()):
            waiting = asyncio.create_task(slots.taken(()).__aenter__())
            await asyncio.sleep(0.01)
            assert not waiting.done()
            waiting.cancel()

    asyncio.run(main())


class Keyed(Noting):
    """Equal answers have one verdict."""

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        return trajectory.completion


def test_a_shared_verification_ends_with_its_last_asker() -> None:
    """The first asker may go: the others get the verdict; when all go it is ended."""
    reward = Keyed(0.05)
    runner = VerificationRunner(reward=reward, workers=2)
    (problem, *_) = ToyTask().problems("train")
    answer = Trajectory.from_text(problem.id, "same")

    async def main() -> None:
        first, second, third = (runner.begin(problem, answer) for _ in range(3))
        await asyncio.sleep(0.01)
        first.cancel()
        outcomes = await asyncio.gather(second, third)
        assert all(isinstance(outcome, Reward) for outcome in outcomes)
        assert reward.begun == ["same"]

        tasks = [runner.begin(problem, answer) for _ in range(2)]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert reward.begun == ["same"] * 2
        assert reward.ended == ["same"]
        assert not runner.running

    asyncio.run(main())


class WholeRollouts(Policy):
    """Gives no tokens: the group sampler asks it for trajectories, each with its own episode."""

    makes_rollouts = True
    version, digest = 3, "agent"

    async def generate(self, request: Any) -> Any:
        raise AssertionError("it gives no tokens")

    async def rollout(
        self, problem: Problem, episode: Any, params: SamplingParams, index: int
    ) -> Trajectory:
        made = episode()
        assert made is not episode()
        text = made.prompt()[0].content
        return Trajectory(problem_id=problem.id, index=index, files={"answer": text})


def test_a_policy_without_tokens_makes_whole_rollouts() -> None:
    """G of them a problem; the default of the base class refuses."""
    task = ToyTask()
    problems = list(task.problems("train"))[:2]
    sampling = sample_groups(
        GroupSampler(), WholeRollouts(), task, problems, SamplingParams(group_size=3)
    )

    for group, problem in zip(asyncio.run(sampling), problems, strict=True):
        assert [t.index for t in group.trajectories] == [0, 1, 2]
        assert group.trajectories[0].files == {"answer": problem.prompt[0].content}
    says = type("Says", (WholeRollouts,), {"rollout": Policy.rollout})()
    with pytest.raises(UnsupportedError, match="no whole rollouts"):
        asyncio.run(says.rollout(problems[0], None, SamplingParams(), 0))
