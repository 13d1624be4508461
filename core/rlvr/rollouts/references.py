"""A sampler that gives reference answers instead of samples, for supervised fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from rlvr.errors import ConfigError, explain
from rlvr.parts import BuildContext, Policy, Sampler, Task
from rlvr.rollouts.group import LEAST_PROMPT, GroupSampler
from rlvr.types import (
    Completion,
    GenerateRequest,
    Group,
    Problem,
    SamplingParams,
    Segment,
    Trajectory,
)


class ReferenceSampler(Sampler):
    """
    One trajectory a problem: its reference answer, tokenised, with logprobs of zero.

    A reference of several turns is played through the task's own episode, which says what stands
    between them. Nothing is drawn, so importance-weighted losses refuse this sampler. Problems
    without a reference yield an empty group and are thereby left out.
    """

    draws_from_policy = False

    def __init__(self, config: None, context: BuildContext) -> None:
        del config, context

    async def sample(
        self, policy: Policy, task: Task, problems: Sequence[Problem], params: SamplingParams
    ) -> list[Group]:
        """One reference trajectory a problem, in the order of `problems`."""
        groups = [
            Group(problem=p, trajectories=await _reference(policy, task, p, params))
            for p in problems
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


async def _reference(
    policy: Policy, task: Task, problem: Problem, params: SamplingParams
) -> list[Trajectory]:
    reference = task.reference(problem)
    if reference is None or not reference.completion:
        return []
    if len(reference.completions) > 1:
        return await _played(policy, task, problem, reference.completions, params)
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


async def _played(
    policy: Policy, task: Task, problem: Problem, texts: Sequence[str], params: SamplingParams
) -> list[Trajectory]:
    """The turns of a reference as a rollout would leave them; none where they do not fit."""
    reciter = _Reciter(policy, texts)
    alone = evolve(params, group_size=1, max_tokens=1)
    if policy.context_length < LEAST_PROMPT + alone.max_tokens:
        return []
    sampler = GroupSampler(workers=1, turns=len(texts))
    (group,) = await sampler.sample(reciter, task, [problem], alone)
    return [
        t
        for t in group.trajectories
        if t.finish == "stop" and not t.prompt_cut and len(t.tokens) <= policy.context_length
    ]


class _Reciter(Policy):
    """A policy that repeats given texts, turn by turn."""

    def __init__(self, policy: Policy, texts: Sequence[str]) -> None:
        self.version, self.digest = policy.version, policy.digest
        self.tokenizer = policy.tokenizer
        self.context_length = policy.context_length
        self.image_processor = policy.image_processor
        self._texts = iter(texts)

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        """The next text, for the one rollout there is."""
        text = next(self._texts)
        tokens = [*self.tokenizer.encode(text), self.tokenizer.eos_id]
        return [
            Completion(tokens=tokens, logprobs=[0.0] * len(tokens), text=text, finish="stop")
            for _ in requests
        ]
