"""The sampler `chat`: trajectories of messages and texts, for policies without tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from rlvr import ConfigError, GroupSampler, Policy, Problem, SamplingParams, Task, Trajectory


class ChatSampler(GroupSampler):
    """Asks a policy without tokens for `params.group_size` chats a problem (`Policy.rollout`)."""

    def sample(
        self, policy: Policy, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        """
        Each trajectory as its chat ends.

        Raises:
            ConfigError: The policy is no server's.
            PrerequisiteError: What fails for one request fails for all: the key, the sandbox.
        """
        if not policy.makes_rollouts:
            raise ConfigError(
                "sampler chat was asked for.",
                f"found: a policy that gives tokens ({type(policy).__name__}), no server",
                "leave --sampler out",
            )
        return super().sample(policy, task, problem, params)
