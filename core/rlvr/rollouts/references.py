"""A sampler that gives reference answers instead of samples, for supervised fine-tuning."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from attrs import evolve

from rlvr.errors import explain
from rlvr.parts import BuildContext, Policy, Sampler, Task
from rlvr.rollouts.rollout import LEAST_PROMPT, rollout
from rlvr.types import (
    Completion,
    GenerateRequest,
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
    without a reference have no trajectory and are thereby left out.
    """

    draws_from_policy = False

    def __init__(self, config: None, context: BuildContext) -> None:
        del config, context

    async def sample(
        self, policy: Policy, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        """The reference, where there is one as text that fits the context."""
        reference = task.reference(problem)
        if reference is None or not reference.completion:
            return
        if len(reference.completions) > 1:
            found = await _played(policy, task, problem, reference.completions, params)
        else:
            found = _told(policy, problem, reference.completion, params)
        if found is not None:
            yield found

    def why_empty(self) -> str:
        """No problem has a reference that fits."""
        return explain(
            "the reference sampler was asked for reference answers.",
            "found: none as text that fits the context, for all problems of a step",
            "use a data set with solutions, or sample from the policy (--algo grpo)",
        )


def _told(policy: Policy, problem: Problem, text: str, params: SamplingParams) -> Trajectory | None:
    """A reference of one turn; None where it does not fit."""
    prompt = policy.tokenizer.render(problem.prompt)
    answer = [*policy.tokenizer.encode(text), policy.tokenizer.eos_id]
    if len(prompt) + len(answer) > policy.context_length:
        return None
    segments = (
        Segment(author="prompt", tokens=prompt),
        Segment(author="policy", tokens=answer, logprobs=[0.0] * len(answer), text=text),
    )
    return Trajectory(
        problem_id=problem.id,
        segments=segments,
        temperature=params.temperature,
        policy_version=policy.version,
        policy_digest=policy.digest,
    )


async def _played(
    policy: Policy, task: Task, problem: Problem, texts: Sequence[str], params: SamplingParams
) -> Trajectory | None:
    """The turns of a reference as a rollout would leave them; None where they do not fit."""
    if policy.context_length < LEAST_PROMPT + 1:
        return None
    alone = evolve(params, group_size=1, max_tokens=1)
    played = await rollout(_Reciter(policy, texts), task, problem, alone, turns=len(texts))
    is_whole = played.finish == "stop" and not played.prompt_cut
    return played if is_whole and len(played.tokens) <= policy.context_length else None


class _Reciter(Policy):
    """A policy that repeats given texts, turn by turn."""

    def __init__(self, policy: Policy, texts: Sequence[str]) -> None:
        self.version, self.digest = policy.version, policy.digest
        self.tokenizer = policy.tokenizer
        self.context_length = policy.context_length
        self.image_processor = policy.image_processor
        self._texts = iter(texts)

    async def generate(self, request: GenerateRequest) -> Completion:
        """The next text, for the one rollout there is."""
        text = next(self._texts)
        tokens = [*self.tokenizer.encode(text), self.tokenizer.eos_id]
        return Completion(tokens=tokens, logprobs=[0.0] * len(tokens), text=text, finish="stop")
