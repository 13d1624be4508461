"""The rollout queue between sampling and training: bounds, order, ages, what a resumed run gets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr import Problem, ScoredGroup
from rlvr.records.run_state import ProblemStream, RunState
from rlvr.training.rollout_queue import RolloutQueue


def chosen(batch: int) -> Sequence[Problem]:
    return [Problem(id=f"{batch}.{i}", prompt=()) for i in range(3)]


def group(name: str) -> ScoredGroup:
    return ScoredGroup(problem=Problem(id=name, prompt=()), trajectories=(), outcomes=())


def queue(staleness: int = 0, steps: int = 99) -> RolloutQueue:
    """A queue of three problems a step, with its first state."""
    made = RolloutQueue(
        per_step=3, staleness=staleness, steps=steps, problem_stream=ProblemStream()
    )
    made.publish(RunState())
    return made


def arrive(books: RolloutQueue, tickets: Iterable[int]) -> None:
    """A group comes of each ticket, named after it."""
    for ticket in tickets:
        books.arrive(ticket, group(str(ticket)))


def test_a_feed_hands_out_batches_in_pieces_and_skips_nothing() -> None:
    """Two, two and five problems are the first nine of the batches."""
    problem_stream, seen = ProblemStream(), []
    for count in (2, 2, 5):
        ids, problem_stream = problem_stream.take(count, chosen)
        seen += ids
    assert seen == [f"{b}.{i}" for b in range(3) for i in range(3)]
    assert problem_stream == ProblemStream(drawn=3, begun=9)


def test_tickets_go_on_where_a_resumed_run_stopped() -> None:
    """Draws follow from tickets: none is given twice in a run, however often it is resumed."""

    async def main() -> None:
        books = queue()
        assert (await books.room(chosen)).tickets == range(3)
        books.publish(RunState())  # at most three under way: no more room
        resumed = RolloutQueue(per_step=3, staleness=0, steps=9, problem_stream=books.snapshot())
        resumed.publish(RunState())
        order = await resumed.room(chosen)
        assert (order.tickets, order.problem_ids) == (range(3, 6), ("0.0", "0.1", "0.2"))

    asyncio.run(main())


def test_with_staleness_0_nothing_begins_before_the_step_is_finished() -> None:
    """One batch, then the door is closed until the next state is published."""

    async def main() -> None:
        books = queue()
        order = await books.room(chosen)
        assert order.problem_ids == ("0.0", "0.1", "0.2")
        waiting = asyncio.create_task(books.room(chosen))
        for ticket in reversed(order.tickets):
            books.arrive(ticket, group(order.problem_ids[ticket]))
        taken = [await books.next() for _ in range(3)]
        assert [t[0].problem.id for t in taken if t] == ["0.0", "0.1", "0.2"]
        await asyncio.sleep(0)
        assert not waiting.done()
        books.publish(RunState(step=1))
        assert (await waiting).problem_ids == ("1.0", "1.1", "1.2")

    asyncio.run(main())


def test_sampling_waits_when_training_falls_behind() -> None:
    """With staleness 2, three batches may be under way and no group more."""

    async def main() -> None:
        books = queue(staleness=2)
        for _ in range(3):
            assert len((await books.room(chosen)).tickets) == 3
        waiting = asyncio.create_task(books.room(chosen))
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()

    asyncio.run(main())


def test_a_slow_group_holds_up_nobody() -> None:
    """With staleness 1 a batch is made of what is ready; the straggler is taken when it comes."""

    async def main() -> None:
        books = queue(staleness=1)
        for _ in range(2):
            order = await books.room(chosen)
            for ticket in order.tickets:
                if ticket:  # ticket 0 is slow
                    books.arrive(ticket, group(str(ticket)))
        assert [(await books.next())[0].problem.id for _ in range(3)] == ["1", "2", "3"]  # type: ignore[index]
        books.publish(RunState(step=1))
        books.arrive(0, group("0"))
        assert await books.next() == (group("0"), 1)

    asyncio.run(main())


def test_a_group_that_is_too_old_is_dropped_and_replaced() -> None:
    """What no step may train on any more is counted, and another one begins in its place."""

    async def main() -> None:
        books = queue(staleness=1)
        order = await books.room(chosen)
        books.publish(RunState(step=2))
        arrive(books, order.tickets)
        assert books.take_stale() == 3
        assert books.take_stale() == 0
        assert len((await books.room(chosen)).tickets) == 3

    asyncio.run(main())


def test_what_was_handed_out_lately_is_known_to_a_choice() -> None:
    """Problems that no pass rate knows yet: under way, or handed out since the last step."""

    async def main() -> None:
        books = queue(staleness=1)
        await books.room(chosen)
        for ticket in range(3):
            books.arrive(ticket, group(str(ticket)))
            await books.next()
        assert books.recent == {"0.0", "0.1", "0.2"}
        await books.room(chosen)
        books.publish(RunState(step=1))
        assert books.recent == {"1.0", "1.1", "1.2"}

    asyncio.run(main())


def test_a_group_that_taught_nothing_is_replaced_in_one_batch() -> None:
    """Two of three are refilled: sampling is asked for two at once, after the third has come."""

    async def main() -> None:
        books = queue()
        order = await books.room(chosen)
        arrive(books, order.tickets)
        await books.next()
        books.refill()
        await books.next()
        books.refill()
        assert (await books.next())[0].problem.id == "2"  # type: ignore[index]
        more = asyncio.create_task(books.next())
        order = await books.room(chosen)
        assert order.problem_ids == ("1.0", "1.1")
        arrive(books, order.tickets)
        assert (await more) == (group("3"), 0)
        assert (await books.next()) == (group("4"), 0)
        assert await books.next() is None
        assert books.snapshot() == ProblemStream(drawn=2, begun=5, waiting=("1.2",))

    asyncio.run(main())


def test_what_was_under_way_comes_again_after_a_resume() -> None:
    """Problems that were sampled but not trained on are handed out first, in their order."""

    async def main() -> None:
        books = queue(staleness=1)
        await books.room(chosen)
        order = await books.room(chosen)
        arrive(books, (4, 1))
        assert (await books.next()) == (group("1"), 0)
        assert len(order.tickets) == 3
        again = books.snapshot()
        assert again.waiting == ("0.0", "0.2", "1.0", "1.1", "1.2")
        ids, _ = again.take(6, chosen)
        assert ids[-1] == "2.0"

    asyncio.run(main())


def test_whoever_begins_while_weights_change_sees_that_they_did() -> None:
    """The count moves at both ends of a change, so that no half of it goes unnoticed."""

    async def main() -> None:
        books = queue()
        before = books.updates
        async with books.changing_weights():
            within = books.updates
        assert before != within != books.updates

    asyncio.run(main())


def test_whoever_waits_is_told_of_a_failure() -> None:
    """An error of the sampling side reaches the training side."""

    async def main() -> None:
        books = queue()
        waiting = asyncio.create_task(books.next())
        await asyncio.sleep(0)
        books.fail(ValueError("the sampler broke"))
        with pytest.raises(ValueError, match="the sampler broke"):
            await waiting

    asyncio.run(main())


@settings(max_examples=60, deadline=None)
@given(
    staleness=st.integers(0, 3),
    order=st.randoms(use_true_random=False),
    steps=st.integers(1, 6),
)
def test_no_bound_is_ever_broken(staleness: int, order: object, steps: int) -> None:
    """In any order of arrival: ages, numbers under way and the number of steps hold."""

    async def main() -> None:
        books = queue(staleness=staleness, steps=steps)
        arriving: list[int] = []

        async def produce() -> None:
            while True:
                arriving.extend((await books.room(chosen)).tickets)

        producer = asyncio.create_task(produce())
        for step in range(steps):
            books.publish(RunState(step=step))
            for _ in range(3):
                taking = asyncio.create_task(books.next())
                while not taking.done():
                    await asyncio.sleep(0)
                    assert len(arriving) <= (staleness + 1) * 3
                    if arriving and not taking.done():
                        place = order.randrange(len(arriving))  # type: ignore[attr-defined]
                        ticket = arriving.pop(place)
                        books.arrive(ticket, group(str(ticket)))
                taken = await taking
                assert taken is not None
                assert 0 <= taken[1] <= staleness
        producer.cancel()

    asyncio.run(asyncio.wait_for(main(), 10))


@pytest.mark.parametrize("seed", range(20))
def test_weights_are_kept_or_changed_and_nobody_waits_for_ever(seed: int) -> None:
    """Twelve draws and three updates with random delays: an update is alone, draws are together."""
    rng = random.Random(seed)
    books = queue(staleness=1)
    drawing, most, updating = 0, 0, 0

    async def pause() -> None:
        for _ in range(rng.randrange(6)):
            await asyncio.sleep(0)

    async def draw() -> None:
        nonlocal drawing, most
        for _ in range(4):
            await pause()
            async with books.keeping_weights():
                before, drawing = books.updates, drawing + 1
                most = max(most, drawing)
                await pause()
                drawing -= 1
                assert (updating, books.updates) == (0, before)

    async def update() -> None:
        nonlocal updating
        for _ in range(3):
            await pause()
            async with books.changing_weights():
                updating += 1
                await pause()
                assert (drawing, updating) == (0, 1)
                updating -= 1

    async def main() -> None:
        await asyncio.gather(*(draw() for _ in range(12)), update())

    asyncio.run(asyncio.wait_for(main(), 10))
    assert most > 1
    assert books.updates == 6
