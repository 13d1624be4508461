"""A sampler that gives reference answers instead of samples, for supervised fine-tuning."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from attrs import evolve

from rlvr.border.promises import reference_of
from rlvr.errors import explain
from rlvr.parts import BuildContext, Policy, Sampler, Task
from rlvr.rollouts.rollout import rollout
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
        self._without = 0  # problems without a reference as text
        self._too_long: list[int] = []  # tokens of the references that do not fit
        self._context = 0

    async def sample(
        self, policy: Policy, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        """The reference, where there is one as text that fits the context."""
        reference = reference_of(task, problem)
        if reference is None or not reference.completion:
            self._without += 1
            return
        if len(reference.completions) > 1:
            found = await _played(policy, task, problem, reference.completions, params)
        else:
            found = _told(policy, problem, reference.completion, params)
        self._context = policy.context_length
        tokens = len(found.tokens) + found.prompt_cut
        if found.finish == "error":
            self._without += 1
        elif found.finish == "length" or tokens > self._context:
            self._too_long.append(max(tokens, self._context + 1))  # later turns are not played
        else:
            yield found

    def why_empty(self) -> str:
        """Why no reference is used: the problems so far have none, or none that fits."""
        if not self._too_long:
            return explain(
                "the reference sampler was asked for reference answers.",
                f"found: none as text, for {self._without} problems",
                "use a data set with solutions, or sample from the policy (--algo grpo)",
            )
        return explain(
            "the reference sampler was asked for reference answers.",
            f"found: with their prompts, {len(self._too_long)} do not fit the model's context of "
            f"{self._context} tokens (the shortest needs {min(self._too_long)} or more); "
            f"{self._without} problems have none as text",
            "take a model with a longer context, or problems with shorter prompts",
        )


def _told(policy: Policy, problem: Problem, text: str, params: SamplingParams) -> Trajectory:
    """A reference of one turn, however long."""
    prompt = policy.tokenizer.render(problem.prompt)
    answer = [*policy.tokenizer.encode(text), policy.tokenizer.eos_id]
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
) -> Trajectory:
    """The turns of a reference as a rollout leaves them; cut off where they do not fit."""
    alone = evolve(params, group_size=1, max_tokens=1)
    return await rollout(_Reciter(policy, texts), task, problem, alone, turns=len(texts))


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
