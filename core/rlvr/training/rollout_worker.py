"""Sampling and verification, as a coroutine that runs beside training.

Each rollout is a coroutine, and its verification begins when it ends. With staleness 0 sampling
waits until the last step is finished, and the run equals the synchronous one to the bit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import attrs
from attrs import define, field, frozen

from rlvr.assembly.recipe import Recipe
from rlvr.border.abilities import is_kept
from rlvr.concurrency import all_of, end
from rlvr.curriculum.discovered import Growth
from rlvr.curriculum.select import problems_of_step
from rlvr.parts import Policy
from rlvr.progress.status import RunStatus
from rlvr.records.run_state import RunState
from rlvr.rollouts.group import check_any, scored_group
from rlvr.seeds import seed_of
from rlvr.training import stages
from rlvr.training.rollout_queue import RolloutQueue, RolloutRequest
from rlvr.training.sampling_policy import SamplingPolicy
from rlvr.types import Group, Problem, ScoredGroup
from rlvr.verification.runner import VerificationRunner


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
    """State shared by sampling and training: the queue, the problems, the policy."""

    queue: RolloutQueue
    growth: Growth
    policy: SamplingPolicy

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
    policy = SamplingPolicy(recipe=recipe, queue=queue)
    stream = RolloutWorker(queue=queue, growth=growth, policy=policy)
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
        useful = [group for group in useful if is_kept(recipe.advantage, group)]
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
    parity = stream.policy.parity
    mismatch = parity.metrics() if parity else {}
    if queue.staleness:
        numbers |= mismatch  # on stale data a loss would take the policy's own movement for it
        numbers["pipeline/staleness_mean"] = sum(ages) / max(len(ages), 1)
        numbers["pipeline/staleness/max"] = float(max(ages, default=0))
        numbers["pipeline/too_stale"] = float(queue.take_stale())
    return Batch(met=met, kept=kept, numbers=numbers, mismatch=mismatch)


async def _produce(recipe: Recipe, stream: RolloutWorker, status: RunStatus) -> None:
    """Begin rollouts whenever the queue has room; with staleness 0 one request after the other."""
    queue, growth = stream.queue, stream.growth
    own = attrs.evolve(recipe.runner, running=set())  # an evaluation's work is not ours to end
    running: set[asyncio.Task[object]] = set()

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

    def ended(task: asyncio.Task[object]) -> None:
        running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            queue.fail(error)

    try:
        while True:
            await queue.has_room()
            if recipe.task.discovers_problems and queue.needs_choice:
                with status.during("grow"):
                    policy, _ = await stream.policy.newest()
                    await growth.grow(
                        recipe.task,
                        policy,
                        seed=recipe.seed,
                        step=queue.problem_stream.drawn,
                        waiting=queue.problem_stream.waiting,
                    )
            order = await queue.room(choose)
            known = growth.known
            rollouts = _Rollouts(
                recipe=recipe,
                stream=stream,
                order=order,
                problems=[known[name] for name in order.problem_ids],
                runner=own.at(order.step, order.history),
                status=status,
            )
            task: asyncio.Task[object] = asyncio.create_task(rollouts.run())
            running.add(task)
            task.add_done_callback(ended)
            if not queue.staleness:
                await asyncio.wait([task])
    except Exception as error:  # handed to whoever waits for groups, who raises it
        queue.fail(error)
    finally:
        await end(running)
        await own.stop()


@define(kw_only=True)
class _Rollouts:
    """The rollouts of one request; each group arrives when it is judged and the probe is made."""

    recipe: Recipe
    stream: RolloutWorker
    order: RolloutRequest
    problems: Sequence[Problem]
    runner: VerificationRunner
    status: RunStatus
    _sampled: dict[int, Group] = field(factory=dict, init=False)  # by ticket
    _arrived: int = field(default=0, init=False)
    _is_probed: bool = field(default=False, init=False)
    _is_checked: bool = field(default=False, init=False)
    _moved: asyncio.Event = field(factory=asyncio.Event, init=False)

    async def run(self) -> None:
        """Sample, probe and judge."""
        with self.status.during("sample"):
            policy, updates = await self.stream.policy.newest()
        groups = zip(self.order.tickets, self.problems, strict=True)
        await all_of([self._watch(updates), *(self._group(policy, *group) for group in groups)])

    async def _watch(self, updates: int) -> None:
        """Show what is waited for; the probe has all groups, or the first where steps overlap."""
        every = len(self.problems)
        few = 1 if self.stream.queue.staleness else every
        with self.status.during("sample"):
            await self._until(lambda: len(self._sampled) >= few)
        groups = [self._sampled[ticket] for ticket in sorted(self._sampled)]
        with self.status.during("parity"):
            await self.stream.policy.probe(groups, self.recipe.params, updates)
        self._is_probed = True
        self._tell()
        if len(self._sampled) < every:
            with self.status.during("sample"):
                await self._until(lambda: len(self._sampled) >= every)
        check_any(self.recipe.sampler, list(self._sampled.values()))
        self._is_checked = True
        self._tell()
        with self.status.during("verify"):
            await self._until(lambda: self._arrived >= every)

    async def _group(self, policy: Policy, ticket: int, problem: Problem) -> None:
        recipe = self.recipe
        params = attrs.evolve(recipe.params, seed=seed_of(recipe.seed, "sample", ticket))
        scored = await scored_group(
            recipe.sampler,
            policy,
            recipe.task,
            problem,
            params,
            self.runner,
            rank=(self.order.step, ticket),
            sampled=partial(self._ended, ticket),
        )
        # no step is made of empty groups alone
        await self._until(lambda: self._is_probed and bool(self._is_checked or scored.trajectories))
        self.stream.queue.arrive(ticket, scored)
        self._arrived += 1
        self._tell()

    def _ended(self, ticket: int, group: Group) -> None:
        self._sampled[ticket] = group
        self.status.sampled += sum(int(t.mask.sum()) for t in group.trajectories)
        self._tell()

    def _tell(self) -> None:
        """Wake all who wait; those who come later wait for the next event."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def _until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            await self._moved.wait()
