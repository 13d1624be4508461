"""One limit for all that costs a core: tools between turns, hidden tests, verdicts, agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest

from rlvr import BuildContext, Problem, Reward, SamplingParams, Trajectory, sample_groups
from rlvr.verification.runner import VerificationRunner
from rlvr_cvdp.agents.backend import AgentPolicy
from rlvr_cvdp.agents.config import AgentConfig
from rlvr_cvdp.agents.container import Ran
from rlvr_cvdp.agents.sampler import AgentSampler
from rlvr_cvdp.agents.workspace import Taken
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.sandbox.base import program_slots
from rlvr_cvdp.sandbox.fresh import FreshSlot
from rlvr_cvdp.sandbox.records import Finished
from rlvr_cvdp.task import CvdpTask
from rlvr_cvdp.verify.reward import CvdpReward

ANSWER = "```verilog\nmodule inc(input [7:0] a, output [7:0] y);\n  assign y = {};\nendmodule\n```"


class Counter:
    """How many are within at the same time, and the most there ever were."""

    def __init__(self) -> None:
        self.now = self.most = self.total = 0

    async def of(self, work: Awaitable[Any]) -> Any:
        self.now += 1
        self.total += 1
        self.most = max(self.most, self.now)
        try:
            return await work
        finally:
            self.now -= 1


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    """Counts what runs in bubblewrap."""
    counter, real = Counter(), FreshSlot.run

    async def counted(*args: Any, **options: Any) -> Finished:
        return await counter.of(real(*args, **options))

    monkeypatch.setattr(FreshSlot, "run", counted)
    yield counter
    assert counter.now == 0


def opened(bench: Any, workers: int, **options: Any) -> tuple[CvdpTask, CvdpReward, Problem]:
    """A task of several turns, the reward of the same run, and their problem."""
    context = BuildContext(dataset=bench.dataset(bench.row()), workers=workers)
    config = CvdpConfig(**{**bench.place, "warm": 0, "timeout_s": 20.0, "turns": 3, **options})
    task = CvdpTask(config, context)
    (problem,) = task.problems("all")
    return task, CvdpReward(config, context), problem


def answer(number: int) -> str:
    """An answer that compiles and is wrong, another one for each number."""
    return ANSWER.format(f"a + 8'd{number + 2}")


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize("mode", ["answer", "agent"])
def test_many_turns_at_once_run_few_programs(bench: Any, programs: Counter, mode: str) -> None:
    """Nobody else bounds them: with two workers there are two programs, and never a third."""
    said = "```run compile\n```" if mode == "agent" else answer(1)
    turns = 6
    extra = {"context": {"rtl/inc.sv": bench.right}} if mode == "agent" else {}
    context = BuildContext(dataset=bench.dataset(bench.row(**extra)), workers=2)
    config = CvdpConfig(**{**bench.place, "warm": 0}, turns=3, mode=mode, feedback_tests=False)

    async def work() -> None:
        async with CvdpTask(config, context) as task:
            (problem,) = task.problems("all")
            episodes = [task.episode(problem) for _ in range(turns)]
            await asyncio.gather(*(episode.take(said) for episode in episodes))

    asyncio.run(work())

    assert programs.total == turns
    assert programs.most == 2


@pytest.mark.one_of(2)
@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize("workers", [1, 2])
def test_turns_hidden_tests_and_verdicts_share_one_limit(
    bench: Any, programs: Counter, workers: int
) -> None:
    """In three sandboxes: as many programs as workers, and none waits for ever."""
    task, reward, problem = opened(bench, workers)

    async def verdict(number: int) -> float:
        outcome = await reward(problem, Trajectory.from_text(problem.id, answer(number)))
        assert isinstance(outcome, Reward)
        return outcome.score01

    async def turn(number: int) -> None:
        await task.episode(problem).take(answer(100 + number))

    async def work() -> list[Any]:
        async with task, reward, asyncio.timeout(150):
            return await asyncio.gather(verdict(0), *map(turn, range(2)))

    found = asyncio.run(work())

    assert found[0] == 0.0
    assert programs.most == workers


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_a_verdict_may_wait_longer_for_its_program_than_its_deadline(bench: Any) -> None:
    """The machine's only place is taken for more than `verify.deadline_s`: the answer is judged."""
    _, reward, problem = opened(bench, 1, warm=1)
    right = Trajectory.from_text(problem.id, f"```verilog\n{bench.right}\n```")
    deadline_s = 5.0

    async def work() -> list[Any]:
        async with reward, asyncio.timeout(150):
            await reward(problem, right)  # starts the sandbox
            async with program_slots(1):
                runner = VerificationRunner(reward=reward, deadline_s=deadline_s)
                judged = asyncio.create_task(runner.pairs([(problem, right)]))
                await asyncio.sleep(deadline_s + 0.5)
                assert not judged.done()
            return await judged

    (outcome,) = asyncio.run(work())
    assert isinstance(outcome, Reward)
    assert outcome.score01 == 1.0


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_what_is_given_up_leaves_its_place(bench: Any, programs: Counter) -> None:
    """Of turns that run and turns that wait some are cancelled: the others go on."""
    task, _, problem = opened(bench, 1, feedback_tests=False)

    async def work() -> list[Any]:
        async with task, asyncio.timeout(60):
            turns = [
                asyncio.create_task(task.episode(problem).take(answer(number)))
                for number in range(6)
            ]
            while not programs.now:
                await asyncio.sleep(0.005)
            for number in (0, 2, 3):
                turns[number].cancel()
            return await asyncio.gather(*turns, return_exceptions=True)

    found = asyncio.run(work())

    assert [isinstance(one, asyncio.CancelledError) for one in found] == [
        *(True, False, True, True, False, False)
    ]
    assert programs.most == 1


def test_first_come_first_served() -> None:
    """Whoever asks again stands behind those that wait."""
    order: list[str] = []

    async def twice(name: str) -> None:
        for _ in range(2):
            async with program_slots(1):
                order.append(name)
                await asyncio.sleep(0)

    async def work() -> None:
        await asyncio.gather(*map(twice, "abc"))

    asyncio.run(work())
    asyncio.run(work())  # another loop has a limit of its own

    assert "".join(order) == "abcabc" * 2


# --- agents' containers -----------------------------------------------------------------------


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An agent whose containers end when they are told to; `counter` says how many run."""
    found = SimpleNamespace(counter=Counter(), may_end=[])

    async def attempt(_policy: AgentPolicy, _problem: Any) -> tuple[Ran, Taken]:
        event = asyncio.Event()
        found.may_end.append(event)
        await found.counter.of(event.wait())
        return Ran(exit=0, stopped="", seconds=1.0, log=""), Taken(files={}, left={})

    monkeypatch.setattr(AgentPolicy, "attempt", attempt)
    image = SimpleNamespace(id="image", tags=["agent"])

    def policy(workers: int) -> AgentPolicy:
        return AgentPolicy(client=None, image=image, config=AgentConfig(), workers=workers)

    found.policy = policy
    return found


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_true():
            await asyncio.sleep(0)


def test_agents_of_many_problems_share_the_limit(bench: Any, agent: Any) -> None:
    """Three problems at the same time, two attempts each, two workers: two containers."""
    _, _, problem = opened(bench, 2)

    async def work() -> list[int]:
        sampling = asyncio.create_task(
            sample_groups(
                AgentSampler(), agent.policy(2), None, [problem] * 3, SamplingParams(group_size=2)
            )
        )
        for number in range(6):
            await until(lambda number=number: len(agent.may_end) > number)
            agent.may_end[number].set()
        return [len(group.trajectories) for group in await sampling]

    assert asyncio.run(work()) == [2, 2, 2]
    assert agent.counter.most == 2


def test_attempts_come_as_they_end_and_end_when_nobody_asks(bench: Any, agent: Any) -> None:
    """A slow agent holds no other back; when the next is not asked for, it is ended."""
    _, _, problem = opened(bench, 3)

    async def work() -> list[int]:
        stream: AsyncGenerator[Trajectory] = AgentSampler().sample(
            agent.policy(3), None, problem, SamplingParams(group_size=3)
        )
        async with aclosing(stream) as ended:
            first = asyncio.create_task(anext(ended))
            await until(lambda: len(agent.may_end) == 3)
            agent.may_end[1].set()
            found = [(await first).index]
            agent.may_end[2].set()
            found.append((await anext(ended)).index)
        assert agent.counter.now == 0
        assert len(asyncio.all_tasks()) == 1
        return found

    assert asyncio.run(work()) == [1, 2]
