"""The sampler `agent`: each trajectory is one run of an agent's container."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import structlog

from rlvr import (
    BuildContext,
    ConfigError,
    Group,
    PrerequisiteError,
    Problem,
    Sampler,
    SamplingParams,
    Segment,
    Task,
    Trajectory,
    VerifierError,
    explain,
)
from rlvr_cvdp.agents.backend import AgentPolicy
from rlvr_cvdp.agents.container import Ran
from rlvr_cvdp.agents.workspace import Taken
from rlvr_cvdp.problem import CvdpProblem

NOTE_EVERY_S = 10.0

log = structlog.get_logger(__name__)


class AgentSampler(Sampler):
    """
    Runs the agent `params.group_size` times a problem, `workers` containers at a time.

    `Trajectory.files` are the files to write that it changed; {} where it changed none, or where
    it crashed or was stopped: a wrong answer. Where Docker failed, the trajectory has finish
    "error": no answer at all. `Trajectory.notes["agent"]` says how it ended.
    """

    draws_from_policy = True

    def __init__(self, config: None, context: BuildContext) -> None:
        self._workers = max(context.workers, 1)

    async def sample(
        self, policy: Any, task: Task, problems: Sequence[Problem], params: SamplingParams
    ) -> list[Group]:
        """
        G trajectories a problem, in the order of `problems`.

        Raises:
            ConfigError: The policy is no agent, or the problems are not of CVDP.
            PrerequisiteError: The image cannot be started.
        """
        foreign = next((p for p in problems if not isinstance(p.payload, CvdpProblem)), None)
        if not isinstance(policy, AgentPolicy) or foreign is not None:
            found = "a policy that is no agent" if foreign is None else f"problem {foreign.id}"
            raise ConfigError(
                explain(
                    "sampler agent was asked for.",
                    f"found: {found}; it runs agent images (--model agent:IMAGE) on CVDP problems",
                    "leave --sampler out, or take --plugin cvdp --model agent:IMAGE",
                )
            )
        size, slots = params.group_size, asyncio.Semaphore(self._workers)

        async def one(problem: Problem) -> Trajectory:
            async with slots:
                return await _attempt(policy, problem)

        tasks = [asyncio.create_task(one(p)) for p in problems for _ in range(size)]
        noted = time.monotonic()
        try:
            for done, waiting in enumerate(asyncio.as_completed(tasks), start=1):
                await waiting
                if time.monotonic() - noted > NOTE_EVERY_S:
                    noted = time.monotonic()
                    log.info("agents_ended", done=done, of=len(tasks))
        finally:
            for task_ in tasks:
                task_.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        drawn = [t.result() for t in tasks]
        return [
            Group(problem=problem, trajectories=drawn[i * size : (i + 1) * size])
            for i, problem in enumerate(problems)
        ]


async def _attempt(policy: AgentPolicy, problem: Problem) -> Trajectory:
    try:
        ran, taken = await policy.attempt(problem.payload)
    except PrerequisiteError:  # every agent's
        raise
    except VerifierError as error:
        log.warning("rollout_failed", problem=problem.id, error=str(error))
        return Trajectory(problem_id=problem.id, finish="error", error=str(error))
    return _trajectory(policy, problem, ran, taken)


def _trajectory(policy: AgentPolicy, problem: Problem, ran: Ran, taken: Taken) -> Trajectory:
    told = {
        "image": ", ".join(policy.image.tags),
        "exit": ran.exit,
        "stopped": ran.stopped,
        "why": ran.why,
        "seconds": round(ran.seconds, 2),
        "changed": sorted(taken.files),
        "left": taken.left,
    }
    return Trajectory(
        problem_id=problem.id,
        segments=(
            Segment(author="prompt", tokens=[], text=problem.payload.prompt),
            Segment(author="policy", tokens=[], logprobs=[], text=ran.log),
        ),
        policy_digest=policy.digest,
        files={} if ran.why else taken.files,
        notes={"agent": told},
    )
