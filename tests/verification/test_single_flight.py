"""Work that several verifications wait for is done once, and their clocks follow its clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rlvr import Failed, Outcome, Problem, Reward, RewardFn, SingleFlight, Slots, Trajectory
from rlvr.verification.runner import VerificationRunner
from rlvr.verification.slots import Clock

PROBLEM = Problem(id="p", prompt=())


class Shares(RewardFn):
    """Answers that begin with the same letter share one piece of work, which needs a slot."""

    def __init__(self, seconds: float = 0.01) -> None:
        self.seconds, self.begun = seconds, 0
        self.slots, self.flights = Slots(1), SingleFlight[float]()

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        value = await self.flights.done(trajectory.completion[0], self._work)
        return Reward(value=value, score01=1.0)

    async def _work(self) -> float:
        async with self.slots.taken():
            self.begun += 1
            await asyncio.sleep(self.seconds)
            return 1.0


async def occupied(
    reward: Shares, texts: Sequence[str], *, hold_s: float, late_s: float = 0.0
) -> list[Outcome]:
    """Verify while another one has the slot; the last answer comes so much later."""
    runner = VerificationRunner(reward=reward, deadline_s=0.2, workers=len(texts))
    async with reward.slots.taken():
        pairs = [(PROBLEM, Trajectory.from_text("p", text)) for text in texts]
        judged = [runner.begin(*pair) for pair in pairs[:-1]]
        await asyncio.sleep(late_s)
        judged.append(runner.begin(*pairs[-1]))
        await asyncio.sleep(hold_s)
    async with asyncio.timeout(5):
        return list(await asyncio.gather(*judged))


@pytest.mark.parametrize("late_s", [0.0, 0.3])
def test_no_deadline_runs_while_shared_work_waits(late_s: float) -> None:
    """Three answers share it; also the one that asks when it has long been waiting."""
    reward = Shares()

    outcomes = asyncio.run(occupied(reward, ["a1", "a2", "a3"], hold_s=0.6, late_s=late_s))

    assert [type(outcome) for outcome in outcomes] == [Reward] * 3
    assert reward.begun == 1


def test_shared_work_in_a_slot_counts_for_all() -> None:
    """It hangs: every answer that waits for it fails at the deadline, and the slot is free."""
    reward = Shares(60)

    outcomes = asyncio.run(occupied(reward, ["a1", "a2"], hold_s=0.0))

    assert all(isinstance(o, Failed) and "within 0.2 s" in o.reason for o in outcomes)
    assert reward.slots._free == 1


def test_a_clock_that_joins_and_leaves_counts_what_it_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The work waits in 1..5 s; the other verification joins at 2 and leaves at 4 s."""
    now = 0.0
    monkeypatch.setattr("rlvr.verification.slots.time.monotonic", lambda: now)
    shared, other = Clock(since=0.0), Clock(since=0.0)
    read = []
    following = shared.followed_by(other)
    for second in range(7):
        now = float(second)
        read.append((shared.seconds(), other.seconds()))
        if second in (1, 5):
            shared._add(1 if second == 1 else -1, 0)
        if second == 2:
            following.__enter__()
        if second == 4:
            following.__exit__(None, None, None)

    assert read == [(0, 0), (1, 1), (1, 2), (1, 2), (1, 2), (1, 3), (2, 4)]


def test_it_ends_with_its_last_asker_and_begins_anew() -> None:
    """Cancelling the first of two leaves the work alone, cancelling both ends it."""
    ended: list[str] = []
    flights = SingleFlight[str]()

    async def work() -> str:
        try:
            await asyncio.sleep(0.05)
            return "done"
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def story() -> str:
        first, second = (asyncio.create_task(flights.done("k", work)) for _ in range(2))
        await asyncio.sleep(0.01)
        first.cancel()
        found = await second
        assert (found, ended, "k" in flights) == ("done", [], False)
        both = [asyncio.create_task(flights.done("k", work)) for _ in range(2)]
        await asyncio.sleep(0.01)
        for each in both:
            each.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        assert (ended, "k" in flights) == (["cancelled"], False)
        return await flights.done("k", work)

    assert asyncio.run(story()) == "done"


def test_its_error_reaches_all_and_is_not_kept() -> None:
    """Two askers get the error; the next one asks anew."""
    tries: list[int] = []
    flights = SingleFlight[int]()

    async def work() -> int:
        tries.append(1)
        await asyncio.sleep(0)
        if len(tries) == 1:
            raise OSError("broken")
        return len(tries)

    async def story() -> tuple[list[str], int]:
        found = await asyncio.gather(
            flights.done("k", work), flights.done("k", work), return_exceptions=True
        )
        return [str(each) for each in found], await flights.done("k", work)

    assert asyncio.run(story()) == (["broken", "broken"], 2)


def test_stop_ends_what_is_under_way() -> None:
    """Its askers are cancelled with it."""
    flights = SingleFlight[None]()

    async def story() -> list[object]:
        asked = [asyncio.create_task(flights.done(k, lambda: asyncio.sleep(60))) for k in "ab"]
        await asyncio.sleep(0)
        await flights.stop()
        return await asyncio.gather(*asked, return_exceptions=True)

    assert [type(each) for each in asyncio.run(story())] == [asyncio.CancelledError] * 2
