"""Sampling and verification, as a coroutine that runs beside training.

The stages and their order are the same with any staleness: with 0 sampling waits until the last
step is finished, and the run equals the synchronous one to the bit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import attrs
from attrs import define, frozen

from rlvr.assembly.recipe import Recipe
from rlvr.border.promises import policy_of, sampled
from rlvr.curriculum.discovered import Growth
from rlvr.curriculum.select import problems_of_step
from rlvr.parts import Policy
from rlvr.progress.status import RunStatus
from rlvr.records.run_state import RunState
from rlvr.seeds import seed_of
from rlvr.training import stages
from rlvr.training.mismatch import Parity, check_parity, probe_again
from rlvr.training.rollout_queue import RolloutQueue, RolloutRequest
from rlvr.types import Group, Problem, ScoredGroup


@frozen(kw_only=True)
class Batch:
    """
    The groups of one step, and what was measured on the way.

    Attributes:
        met: All groups that were taken, also those that teach nothing.
        kept: Groups that training sees: every trajectory has a reward.
        numbers: Metrics of the pipeline.
        mismatch: Train-inference mismatch, measured on a probe. Where a loss measures it on all
            data, and they are fresh, use the numbers of the loss.
    """

    met: Sequence[ScoredGroup]
    kept: Sequence[ScoredGroup]
    numbers: Mapping[str, float]
    mismatch: Mapping[str, float]


@define
class RolloutWorker:
    """State shared by sampling and training: the queue, the problems, the last mismatch."""

    queue: RolloutQueue
    growth: Growth
    parity: Parity | None = None

    def memory(self) -> dict[str, Mapping[str, Any]]:
        """Memory of the task's search for problems, for the state of the run."""
        return {"task": self.growth.memory} if self.growth.memory else {}


@asynccontextmanager
async def sampling(
    recipe: Recipe, state: RunState, status: RunStatus
) -> AsyncIterator[RolloutWorker]:
    """Sampling and verification go on in the background while the block runs."""
    growth = Growth.resumed(recipe.task, recipe.problems, state.memory.get("task", {}))
    queue = RolloutQueue(
        per_step=recipe.train.problems,
        staleness=recipe.max_staleness,
        steps=recipe.steps,
        problem_stream=state.problem_stream.without_unknown(growth.known),
    )
    stream = RolloutWorker(queue=queue, growth=growth)
    producer = asyncio.create_task(_produce(recipe, stream, status))
    try:
        yield stream
    finally:
        producer.cancel()
        with suppress(
            asyncio.CancelledError, Exception
        ):  # whoever waited was told: `RolloutQueue.fail`
            await producer


async def next_batch(recipe: Recipe, stream: RolloutWorker, state: RunState) -> Batch:
    """
    The groups of the step after `state`: `train.problems` of them that teach something.

    Groups that the advantage does not keep are replaced by others, as often as it
    allows; then the step goes on with what there is.

    Raises:
        VerifierError: Too many verifications could not run.
        BackendError: Sampler and trainer are not the same policy.
    """
    queue, begun = stream.queue, time.monotonic()
    refills = recipe.advantage.refill_limit * recipe.train.problems
    missing = recipe.train.problems
    met: list[ScoredGroup] = []
    kept: list[ScoredGroup] = []
    ages: list[int] = []
    queue.publish(state)
    while missing and (taken := await queue.next()) is not None:
        group, age = taken
        met.append(group)
        ages.append(age)
        useful = stages.admit([group], smallest=recipe.smallest_group)
        useful = [group for group in useful if recipe.advantage.keep(group)]
        kept += useful
        if refills and not useful:
            refills -= 1
            queue.refill()
        else:
            missing -= 1
    recipe.runner.check_failures([o for g in met for o in g.outcomes])
    numbers = {
        "pipeline/kept": float(len(kept)),
        "pipeline/refilled": float(len(met) - recipe.train.problems + missing),
        "pipeline/wait_s": time.monotonic() - begun,
    }
    mismatch = stream.parity.metrics() if stream.parity else {}
    if queue.staleness:
        numbers |= mismatch  # on stale data a loss would take the policy's own movement for it
        numbers["pipeline/staleness_mean"] = sum(ages) / max(len(ages), 1)
        numbers["pipeline/staleness/max"] = float(max(ages, default=0))
        numbers["pipeline/too_stale"] = float(queue.take_stale())
    return Batch(met=met, kept=kept, numbers=numbers, mismatch=mismatch)


async def _produce(recipe: Recipe, stream: RolloutWorker, status: RunStatus) -> None:
    """Sample whenever the queue has room; each group is verified on its own."""
    queue, growth = stream.queue, stream.growth
    own = attrs.evolve(recipe.runner, running=set())  # an evaluation's work is not ours to end
    verifying: set[asyncio.Task[None]] = set()

    def choose(batch: int) -> Sequence[Problem]:
        return problems_of_step(
            recipe.task,
            (*growth.fixed, *growth.found),
            recipe.train.problems,
            seed=recipe.seed,
            state=RunState(step=batch, history=queue.history),
            curriculum=recipe.curriculum,
            handed_out={*queue.recent, *queue.problem_stream.waiting},
            trained=queue.step,
        )

    def ended(task: asyncio.Task[None]) -> None:
        verifying.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            queue.fail(error)

    try:
        while True:
            await queue.has_room()
            if recipe.task.discovers_problems and queue.needs_choice:
                with status.during("grow"):
                    policy = await _handle(recipe, queue)
                    await growth.grow(
                        recipe.task,
                        policy,
                        seed=recipe.seed,
                        step=queue.problem_stream.drawn,
                        waiting=queue.problem_stream.waiting,
                    )
            order = await queue.room(choose)
            known = growth.known
            problems = [known[name] for name in order.problem_ids]
            groups = await _sample(recipe, stream, order, problems, status)
            runner = own.at(order.step, order.history)
            for ticket, scored in zip(order.tickets, runner.begin(groups), strict=True):
                task = asyncio.create_task(_arrive(queue, ticket, scored))
                verifying.add(task)
                task.add_done_callback(ended)
            if not queue.staleness:
                with status.during("verify"):
                    await asyncio.gather(*verifying)
    except Exception as error:  # handed to whoever waits for groups, who raises it
        queue.fail(error)
    finally:
        await own.stop()
        await asyncio.gather(*verifying, return_exceptions=True)


async def _arrive(queue: RolloutQueue, ticket: int, scored: asyncio.Task[ScoredGroup]) -> None:
    queue.arrive(ticket, await scored)


async def _sample(
    recipe: Recipe,
    stream: RolloutWorker,
    order: RolloutRequest,
    problems: Sequence[Problem],
    status: RunStatus,
) -> list[Group]:
    """Groups of the problems by the newest weights; a probe of them is checked for mismatch."""
    queue, options = stream.queue, recipe.parity
    backend, updates = recipe.backend, stream.queue.updates
    params = attrs.evolve(recipe.params, seed=seed_of(recipe.seed, "sample", order.call + 1))
    with status.during("sample"):
        policy = await _handle(recipe, queue)
        groups = await sampled(recipe.sampler, policy, recipe.task, problems, params)
        status.sampled += sum(int(t.mask.sum()) for g in groups for t in g.trajectories)
    if not (options.probe and recipe.sampler.draws_from_policy):
        return groups
    async with queue.updating:
        with status.during("parity"):
            probed: Sequence[Group] = groups
            if queue.updates != updates:  # the weights are no longer those that sampled
                probed = await probe_again(await policy_of(backend), groups, options.probe, params)
            stream.parity = await check_parity(
                backend, probed, probe=options.probe, threshold=options.threshold
            )
    return groups


async def _handle(recipe: Recipe, queue: RolloutQueue) -> Policy:
    """The policy that samples: the newest weights, and those after them where steps overlap."""
    backend = recipe.backend
    if queue.staleness and backend.capabilities.partial_rollouts:
        return await policy_of(backend, is_live=True)
    return await policy_of(backend)
