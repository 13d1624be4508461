"""The sampler `agent`: each trajectory is one run of an agent's container."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import structlog
from attrs import evolve

from rlvr import (
    BuildContext,
    ConfigError,
    PrerequisiteError,
    Problem,
    Sampler,
    SamplingParams,
    Segment,
    Task,
    Trajectory,
    VerifierError,
    as_they_end,
)
from rlvr_cvdp.agents.backend import AgentPolicy
from rlvr_cvdp.agents.container import Ran
from rlvr_cvdp.agents.workspace import Taken
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.sandbox.base import program_slots

log = structlog.get_logger(__name__)


class AgentSampler(Sampler):
    """
    Runs the agent `params.group_size` times a problem, `workers` containers at a time.

    They and the programs of verdicts share one limit (`program_slots`).

    `Trajectory.files` are the files to write that it changed; {} where it changed none, or where
    it crashed or was stopped: a wrong answer. Where Docker failed, the trajectory has finish
    "error": no answer at all. `Trajectory.notes["agent"]` says how it ended.
    """

    draws_from_policy = True

    def __init__(self, config: None, context: BuildContext) -> None:
        self._workers = max(context.workers, 1)

    async def sample(
        self, policy: Any, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        """
        Each trajectory as its container ends.

        Raises:
            ConfigError: The policy is no agent, or the problem is not of CVDP.
            PrerequisiteError: The image cannot be started.
        """
        is_ours = isinstance(problem.payload, CvdpProblem)
        if not isinstance(policy, AgentPolicy) or not is_ours:
            found = "a policy that is no agent" if is_ours else f"problem {problem.id}"
            raise ConfigError(
                "sampler agent was asked for.",
                f"found: {found}; it runs agent images (--model agent:IMAGE) on CVDP problems",
                "leave --sampler out, or take --plugin cvdp --model agent:IMAGE",
            )

        async def one(index: int) -> Trajectory:
            async with program_slots(self._workers):
                return evolve(await _attempt(policy, problem), index=index)

        async with aclosing(as_they_end(map(one, range(params.group_size)))) as ended:
            async for trajectory in ended:
                yield trajectory


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
