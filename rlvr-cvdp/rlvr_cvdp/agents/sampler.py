"""The sampler `agent`: each trajectory is one run of an agent's container."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from rlvr import ConfigError, GroupSampler, Policy, Problem, SamplingParams, Task, Trajectory
from rlvr_cvdp.problem import CvdpProblem


class AgentSampler(GroupSampler):
    """Runs the agent `params.group_size` times a problem (`AgentPolicy.rollout`)."""

    def sample(
        self, policy: Policy, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        """
        Each trajectory as its container ends.

        Raises:
            ConfigError: The policy is no agent, or the problem is not of CVDP.
            PrerequisiteError: The image cannot be started.
        """
        is_ours = isinstance(problem.payload, CvdpProblem)
        if not policy.makes_rollouts or not is_ours:
            found = "a policy that is no agent" if is_ours else f"problem {problem.id}"
            raise ConfigError(
                "sampler agent was asked for.",
                f"found: {found}; it runs agent images (--model agent:IMAGE) on CVDP problems",
                "leave --sampler out, or take --plugin cvdp --model agent:IMAGE",
            )
        return super().sample(policy, task, problem, params)
