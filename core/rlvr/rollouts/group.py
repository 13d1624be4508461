"""The group sampler, and groups as they come from any sampler: sampled, or judged as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial

from rlvr.border.promises import episode_of, reason_of, trajectories_of
from rlvr.concurrency import all_of, as_they_end, end
from rlvr.config.core import MOST
from rlvr.errors import ConfigError
from rlvr.parts import Policy, Sampler, Task
from rlvr.rollouts.rollout import check_room, rollout
from rlvr.types import Group, Outcome, Problem, SamplingParams, ScoredGroup, Trajectory
from rlvr.verification.runner import VerificationRunner


class GroupSampler(Sampler):
    """
    Draws `params.group_size` trajectories of a problem from the policy, one coroutine each.

    A policy that makes whole rollouts (`Policy.makes_rollouts`) is asked for those.
    A rollout whose episode raises, or whose completion has finish "error", ends there with finish
    "error" and is counted as a failure; the others go on.
    """

    draws_from_policy = True

    def __init__(self, config: object = None, context: object = None, *, turns: int = 0) -> None:
        """`turns` 0: as many as the episodes have. The sampler has no options."""
        del config, context
        self._turns = turns

    async def sample(
        self, policy: Policy, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        """
        Each trajectory as it ends.

        Raises:
            ConfigError: `params.max_tokens` leave no room for a prompt in the model's context.
        """
        places = range(params.group_size)
        if policy.makes_rollouts:
            episode = partial(episode_of, task, problem)
            rollouts = [policy.rollout(problem, episode, params, index) for index in places]
        else:
            check_room(policy, params)
            rollouts = [
                rollout(policy, task, problem, params, index=index, turns=self._turns)
                for index in places
            ]
        async with aclosing(as_they_end(rollouts)) as ended:
            async for trajectory in ended:
                yield trajectory


async def sample_groups(
    sampler: Sampler,
    policy: Policy,
    task: Task,
    problems: Sequence[Problem],
    params: SamplingParams,
) -> list[Group]:
    """
    A group a problem, order kept; all are sampled at the same time.

    Raises:
        ConfigError: No problem has a trajectory, and the sampler says why.
        PartError: Trajectories are missing or not those of the problems, or the sampler raised.
    """

    async def one(problem: Problem) -> Group:
        async with aclosing(trajectories_of(sampler, policy, task, problem, params)) as ended:
            return group_of(problem, [trajectory async for trajectory in ended])

    groups = await all_of(map(one, problems))
    check_any(sampler, groups)
    return groups


async def scored_group(
    sampler: Sampler,
    policy: Policy,
    task: Task,
    problem: Problem,
    params: SamplingParams,
    runner: VerificationRunner,
    *,
    rank: tuple[int, int] = (0, 0),
    sampled: Callable[[Group], None] = lambda group: None,
) -> ScoredGroup:
    """
    A group of one problem, judged: a verification begins when its own rollout has ended.

    Args:
        sampler: Gives the trajectories.
        policy: That they are drawn from.
        task: Of the problem.
        problem: What is attempted.
        params: How to draw.
        runner: Judges them.
        rank: Verifications that wait begin in this order, the longest first among equals.
        sampled: Called with the group when its last rollout has ended.

    Raises:
        PartError: Trajectories are missing or not those of the problem, or the sampler raised.
    """
    judging: list[tuple[Trajectory, asyncio.Task[Outcome]]] = []
    try:
        async with aclosing(trajectories_of(sampler, policy, task, problem, params)) as ended:
            async for trajectory in ended:
                judging.append((trajectory, runner.begin(problem, trajectory, rank=rank)))
        judging.sort(key=lambda pair: pair[0].index)
        group = group_of(problem, [trajectory for trajectory, _ in judging])
        sampled(group)
        outcomes = await asyncio.gather(*(task for _, task in judging))
    finally:
        await end(task for _, task in judging)
    return ScoredGroup(problem=problem, trajectories=group.trajectories, outcomes=outcomes)


async def scored_groups(
    sampler: Sampler,
    policy: Policy,
    task: Task,
    problems: Sequence[Problem],
    params: SamplingParams,
    runner: VerificationRunner,
    *,
    sampled: Callable[[], None] = lambda: None,
) -> list[ScoredGroup]:
    """
    All problems at the same time, order kept; `sampled` is called after the last rollout.

    Raises:
        ConfigError: No problem has a trajectory, and the sampler says why; or they are too many.
        PartError: As `scored_group`.
    """
    left = len(problems)
    if (asked := left * params.group_size) > MOST:
        raise ConfigError(
            f"{asked} rollouts at a time were asked for.",
            f"found: {left} problems times {params.group_size} samples (eval.samples), and at "
            f"most {MOST} are held in memory",
            "draw fewer samples, or set eval.problems",
        )

    def one_more(group: Group) -> None:
        nonlocal left
        left -= 1
        if not left:
            sampled()

    scored = await all_of(
        scored_group(
            sampler, policy, task, problem, params, runner, rank=(0, place), sampled=one_more
        )
        for place, problem in enumerate(problems)
    )
    check_any(sampler, scored)
    return scored


def group_of(problem: Problem, trajectories: Sequence[Trajectory]) -> Group:
    """The trajectories of a problem, each at its place."""
    return Group(problem=problem, trajectories=sorted(trajectories, key=lambda t: t.index))


def check_any(sampler: Sampler, groups: Sequence[Group | ScoredGroup]) -> None:
    """Raise `ConfigError` where groups are all empty and the sampler can say why."""
    if not any(group.trajectories for group in groups) and (why := reason_of(sampler, "why_empty")):
        raise ConfigError(why)
