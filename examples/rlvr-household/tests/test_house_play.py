"""Episodes beside each other, outside of a run's sampler."""

from __future__ import annotations

import asyncio

import pytest

from rlvr import BackendError, BuildContext, Completion, GenerateRequest, Problem
from rlvr.testing import ScriptedPolicy
from rlvr_household.config import HouseConfig
from rlvr_household.play import play
from rlvr_household.task import HouseTask


def problems(count: int) -> list[Problem]:
    task = HouseTask(HouseConfig(train=8, test=4), BuildContext())
    return list(task.problems("all"))[:count]


class OneWaits(ScriptedPolicy):
    """The first request is answered when `others` were."""

    def __init__(self, others: int) -> None:
        super().__init__(["look"], context_length=40_000)
        self._left, self._go = others, asyncio.Event()
        self.ended = 0

    async def generate(self, request: GenerateRequest) -> Completion:
        is_first = not self.requests
        self.requests.append(request)
        if is_first:
            await self._go.wait()
        self._left -= 1
        if not self._left:
            self._go.set()
        self.ended += 1
        return self._complete(request)


def test_a_slow_turn_holds_no_other_episode_back() -> None:
    """Two episodes of three turns end before the first turn of the third has."""
    policy = OneWaits(others=6)

    played = asyncio.run(asyncio.wait_for(play(policy, problems(3), steps=3), 20))

    assert policy.ended == 9
    assert [one.problem for one in played] == problems(3)
    assert [one.notes["turns"] for one in played] == [3, 3, 3]


def test_what_is_played_does_not_depend_on_who_is_slow() -> None:
    """Seeds follow from the episode's place and its tokens."""
    slow, fast = OneWaits(others=6), ScriptedPolicy(["look"], context_length=40_000)

    first = asyncio.run(play(slow, problems(3), steps=3, temperature=1.0, seed=5))
    again = asyncio.run(play(fast, problems(3), steps=3, temperature=1.0, seed=5))

    assert first == again
    assert {r.seed for r in slow.requests} == {r.seed for r in fast.requests}
    assert len({r.seed for r in fast.requests}) == 9


class Fails(OneWaits):
    """The second request fails."""

    async def generate(self, request: GenerateRequest) -> Completion:
        if len(self.requests) == 1:
            self.requests.append(request)
            raise BackendError("the weights are gone")
        return await super().generate(request)


def test_an_error_ends_all_episodes() -> None:
    """It is raised at once, and nothing is left running."""

    async def work() -> None:
        with pytest.raises(BackendError, match="weights are gone"):
            await play(Fails(others=99), problems(3), steps=3)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(work())
