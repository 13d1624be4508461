"""References in the place of samples: what supervised fine-tuning trains on."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from rlvr.builtin.group_sampler import LEAST_PROMPT, GroupSampler
from rlvr.episode import CountsTokens
from rlvr.errors import ConfigError, explain
from rlvr.parts import BuildContext, Episode, Policy, Task, Tokenizer
from rlvr.types import (
    Completion,
    GenerateRequest,
    Group,
    Message,
    Problem,
    SamplingParams,
    Segment,
    Trajectory,
)


class ReferenceSampler:
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
    (group,) = await GroupSampler(workers=1).sample(
        reciter, _Recital(task, len(texts)), [problem], alone
    )
    return [
        t
        for t in group.trajectories
        if t.finish == "stop" and not t.prompt_cut and len(t.tokens) <= policy.context_length
    ]


class _Reciter:
    """A policy that says what it was given, turn by turn."""

    def __init__(self, policy: Policy, texts: Sequence[str]) -> None:
        self.version, self.digest = policy.version, policy.digest
        self.tokenizer: Tokenizer = policy.tokenizer
        self.context_length = policy.context_length
        self._texts = iter(texts)

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        """The next text, for the one rollout there is."""
        text = next(self._texts)
        tokens = [*self.tokenizer.encode(text), self.tokenizer.eos_id]
        return [
            Completion(tokens=tokens, logprobs=[0.0] * len(tokens), text=text, finish="stop")
            for _ in requests
        ]


class _Recital:
    """The task, with episodes that ask no more than the reference answers."""

    def __init__(self, task: Task, turns: int) -> None:
        self._task, self._turns = task, turns
        self.problems, self.reference = task.problems, task.reference
        self.unsupported = task.unsupported

    def episode(self, problem: Problem) -> Episode:
        return _Bounded(self._task.episode(problem), self._turns)


class _Bounded:
    """An episode of at most so many turns."""

    def __init__(self, episode: Episode, turns: int) -> None:
        self._episode, self._left = episode, turns

    def prompt(self) -> Sequence[Message] | None:
        return self._episode.prompt() if self._left else None

    async def take(self, completion: str) -> None:
        self._left -= 1
        await self._episode.take(completion)

    def count_with(self, tokenizer: Tokenizer) -> None:
        if isinstance(self._episode, CountsTokens):
            self._episode.count_with(tokenizer)
