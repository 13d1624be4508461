"""Sampling and verification beside training: the first half of the line as a coroutine of its own.

The same stages in the same order whatever the staleness: with 0 sampling waits until the last
step is finished, and the run is the synchronous one to the bit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import attrs
from attrs import define, frozen

from rlvr.abilities import Continuing, Growing, Selective
from rlvr.parts import Policy
from rlvr.run import batches, stages
from rlvr.run.board import Board
from rlvr.run.choice import problems_of_step
from rlvr.run.growth import Growth
from rlvr.run.ledger import Ledger, Order
from rlvr.run.parity import Parity, check_parity, probe_again
from rlvr.run.promises import policy_of, sampled
from rlvr.run.recipe import Recipe
from rlvr.run.state import RunState
from rlvr.types import Group, Problem, ScoredGroup


@frozen(kw_only=True)
class Batch:
    """
    What one step trains on.

    Attributes:
        met: All groups that were taken, also those that teach nothing.
        kept: Those that training sees: every trajectory has a reward.
        numbers: Metrics of the pipeline.
        mismatch: What the canary measured on its probe; where a loss measures all data, and they
            are fresh, its numbers are the better ones.
    """

    met: Sequence[ScoredGroup]
    kept: Sequence[ScoredGroup]
    numbers: Mapping[str, float]
    mismatch: Mapping[str, float]


@define
class Stream:
    """Where the two halves of the line meet: the books, the problems, what the canary found."""

    ledger: Ledger
    growth: Growth
    parity: Parity | None = None

    def memory(self) -> dict[str, Mapping[str, Any]]:
        """What the task keeps of its search for problems, for the state of the run."""
        return {"task": self.growth.memory} if self.growth.memory else {}


@asynccontextmanager
async def sampling(recipe: Recipe, state: RunState, board: Board) -> AsyncIterator[Stream]:
    """Sampling and verification go on in the background while the block runs."""
    growth = Growth.resumed(
        recipe.student.judge.task, recipe.problems, state.memory.get("task", {})
    )
    ledger = Ledger(
        per_step=recipe.train.problems,
        staleness=recipe.max_staleness,
        steps=recipe.steps,
        feed=state.feed.without_unknown(growth.known),
    )
    stream = Stream(ledger=ledger, growth=growth)
    producer = asyncio.create_task(_produce(recipe, stream, board))
    try:
        yield stream
    finally:
        producer.cancel()
        with suppress(asyncio.CancelledError, Exception):  # whoever waited was told: `Ledger.fail`
            await producer


async def next_batch(recipe: Recipe, stream: Stream, state: RunState) -> Batch:
    """
    The groups of the step after `state`: `train.problems` of them that teach something.

    Groups that the advantage does not keep (`Selective`) are replaced by others, as often as it
    allows; then the step goes on with what there is.

    Raises:
        VerifierError: Too many verifications could not run.
        BackendError: Sampler and trainer are not the same policy.
    """
    ledger, begun = stream.ledger, time.monotonic()
    selective = recipe.advantage if isinstance(recipe.advantage, Selective) else None
    refills = selective.refills * recipe.train.problems if selective else 0
    missing = recipe.train.problems
    met: list[ScoredGroup] = []
    kept: list[ScoredGroup] = []
    ages: list[int] = []
    ledger.publish(state)
    while missing and (taken := await ledger.next()) is not None:
        group, age = taken
        met.append(group)
        ages.append(age)
        useful = stages.admit([group], smallest=recipe.smallest_group)
        if selective is not None:
            useful = [g for g in useful if selective.keeps(g)]
        kept += useful
        if refills and not useful:
            refills -= 1
            ledger.refill()
        else:
            missing -= 1
    recipe.student.judge.scorer.check_failures([o for g in met for o in g.outcomes])
    numbers = {
        "pipeline/kept": float(len(kept)),
        "pipeline/refilled": float(len(met) - recipe.train.problems + missing),
        "pipeline/wait_s": time.monotonic() - begun,
    }
    mismatch = stream.parity.metrics() if stream.parity else {}
    if ledger.staleness:
        numbers |= mismatch  # on stale data a loss would take the policy's own movement for it
        numbers["pipeline/staleness_mean"] = sum(ages) / max(len(ages), 1)
        numbers["pipeline/staleness/max"] = float(max(ages, default=0))
        numbers["pipeline/too_stale"] = float(ledger.take_stale())
    return Batch(met=met, kept=kept, numbers=numbers, mismatch=mismatch)


async def _produce(recipe: Recipe, stream: Stream, board: Board) -> None:
    """Sample whenever the ledger has room; each group is verified on its own."""
    ledger, growth, judge = stream.ledger, stream.growth, recipe.student.judge
    own = attrs.evolve(judge.scorer, running=set())  # an evaluation's work is not ours to end
    verifying: set[asyncio.Task[None]] = set()

    def choose(batch: int) -> Sequence[Problem]:
        return problems_of_step(
            judge.task,
            (*growth.fixed, *growth.found),
            recipe.train.problems,
            seed=recipe.seed,
            state=RunState(step=batch, history=ledger.history),
            curriculum=recipe.curriculum,
            handed_out={*ledger.recent, *ledger.feed.waiting},
            trained=ledger.step,
        )

    def ended(task: asyncio.Task[None]) -> None:
        verifying.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            ledger.fail(error)

    try:
        while True:
            await ledger.has_room()
            if isinstance(judge.task, Growing) and ledger.needs_choice:
                with board.during("grow"):
                    policy = await _handle(recipe, ledger)
                    await growth.grow(
                        judge.task,
                        policy,
                        seed=recipe.seed,
                        step=ledger.feed.drawn,
                        waiting=ledger.feed.waiting,
                    )
            order = await ledger.room(choose)
            known = growth.known
            problems = [known[name] for name in order.problem_ids]
            groups = await _sample(recipe, stream, order, problems, board)
            scorer = own.at(order.step, order.history)
            for ticket, scored in zip(order.tickets, scorer.begin(groups), strict=True):
                task = asyncio.create_task(_arrive(ledger, ticket, scored))
                verifying.add(task)
                task.add_done_callback(ended)
            if not ledger.staleness:
                with board.during("verify"):
                    await asyncio.gather(*verifying)
    except Exception as error:  # handed to whoever waits for groups, who raises it
        ledger.fail(error)
    finally:
        await own.stop()
        await asyncio.gather(*verifying, return_exceptions=True)


async def _arrive(ledger: Ledger, ticket: int, scored: asyncio.Task[ScoredGroup]) -> None:
    ledger.arrive(ticket, await scored)


async def _sample(
    recipe: Recipe, stream: Stream, order: Order, problems: Sequence[Problem], board: Board
) -> list[Group]:
    """Groups of the problems, with the newest weights; the canary looks at them."""
    ledger, student, options = stream.ledger, recipe.student, recipe.parity
    backend, updates = student.backend, stream.ledger.updates
    params = attrs.evolve(
        student.params, seed=batches.seed_of(recipe.seed, "sample", order.call + 1)
    )
    with board.during("sample"):
        policy = await _handle(recipe, ledger)
        groups = await sampled(student.sampler, policy, student.judge.task, problems, params)
        board.sampled += sum(int(t.mask.sum()) for g in groups for t in g.trajectories)
    if not (options.probe and student.sampler.draws_from_policy):
        return groups
    async with ledger.updating:
        with board.during("parity"):
            probed: Sequence[Group] = groups
            if ledger.updates != updates:  # the weights are no longer those that sampled
                probed = await probe_again(await policy_of(backend), groups, options.probe, params)
            stream.parity = await check_parity(
                backend, probed, probe=options.probe, threshold=options.threshold
            )
    return groups


async def _handle(recipe: Recipe, ledger: Ledger) -> Policy:
    """The policy that samples: the newest weights, and those after them where steps overlap."""
    backend = recipe.student.backend
    if ledger.staleness and isinstance(backend, Continuing):
        return await policy_of(backend, is_live=True)
    return await policy_of(backend)
