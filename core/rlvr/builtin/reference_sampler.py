"""References in the place of samples: what supervised fine-tuning trains on."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr.errors import ConfigError, explain
from rlvr.parts import BuildContext, Policy, Task
from rlvr.types import Group, Problem, SamplingParams, Segment, Trajectory


class ReferenceSampler:
    """
    One trajectory a problem: its reference answer, tokenised, with logprobs of zero.

    Nothing is drawn, so importance-weighted losses refuse this sampler. Problems without a
    reference yield an empty group and are thereby left out.
    """

    draws_from_policy = False

    def __init__(self, config: None, context: BuildContext) -> None:
        del config, context

    async def sample(
        self, policy: Policy, task: Task, problems: Sequence[Problem], params: SamplingParams
    ) -> list[Group]:
        """One reference trajectory a problem, in the order of `problems`."""
        groups = [
            Group(problem=p, trajectories=_reference(policy, task, p, params)) for p in problems
        ]
        if not any(group.trajectories for group in groups):
            raise ConfigError(
                explain(
                    "the reference sampler was asked for reference answers.",
                    f"found: none as text that fits the context, for {len(problems)} problems",
                    "use a data set with solutions, or sample from the policy (--algo grpo)",
                )
            )
        return groups


def _reference(
    policy: Policy, task: Task, problem: Problem, params: SamplingParams
) -> list[Trajectory]:
    reference = task.reference(problem)
    if reference is None or not reference.completion:
        return []
    prompt = policy.tokenizer.render(problem.prompt)
    answer = [*policy.tokenizer.encode(reference.completion), policy.tokenizer.eos_id]
    if len(prompt) + len(answer) > policy.context_length:
        return []
    segments = (
        Segment(author="prompt", tokens=prompt),
        Segment(
            author="policy",
            tokens=answer,
            logprobs=[0.0] * len(answer),
            text=reference.completion,
        ),
    )
    return [
        Trajectory(
            problem_id=problem.id,
            segments=segments,
            temperature=params.temperature,
            policy_version=policy.version,
            policy_digest=policy.digest,
        )
    ]
