"""The one asker of a model: prompts to completions, and completions to lines and moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from rlvr import Completion, GenerateRequest, Message, Policy, SamplingParams, seed_of
from rlvr_chess.questions.grammar import PolicyAnswer, Profile, parse_policy, policy_prompt
from rlvr_chess.questions.transition import count_of, legal_moves

MAX_TOKENS = {"canonical": 120, "rookworld": 160}
"""Tokens of an answer by profile; rookworld's padding takes some. A longer one is malformed."""


async def complete(
    policy: Policy, asked: Iterable[tuple[str, SamplingParams, int]]
) -> list[Completion]:
    """One completion of each prompt, with its params and its seed; in order."""
    render = policy.tokenizer.render
    requests = [
        GenerateRequest(
            prompt=render([Message(role="user", content=prompt)]), params=params, seed=seed
        )
        for prompt, params, seed in asked
    ]
    return await policy.generate_many(requests)


def answer_text(completion: Completion) -> str | None:
    """Text of the answer; None if it was cut off, which no grammar accepts."""
    return None if completion.finish != "stop" else completion.text


def line_of(completion: Completion, count: int, profile: Profile) -> PolicyAnswer | None:
    """The line that was said; None if it was cut off or has not `count` candidates."""
    return parse_policy(completion.text, count, profile) if completion.finish == "stop" else None


@frozen
class Player:
    """A policy and the wording it is asked in."""

    policy: Policy
    profile: Profile = "canonical"

    def params(self, temperature: float = 0.0) -> SamplingParams:
        """Sampling parameters with the profile's largest answer as the limit of tokens."""
        return SamplingParams(max_tokens=MAX_TOKENS[self.profile], temperature=temperature)

    async def texts(
        self, prompts: Sequence[str], *, temperature: float = 0.0, seed: int = 0
    ) -> list[Completion]:
        """
        One completion a prompt, in order; greedy unless a temperature is given.

        Each prompt has a seed of its own, made of `seed` and its place.
        """
        params = self.params(temperature)
        asked = ((prompt, params, seed_of(seed, n)) for n, prompt in enumerate(prompts))
        return await complete(self.policy, asked)

    async def lines(
        self, fens: Sequence[str], *, temperature: float = 0.0, seed: int = 0
    ) -> list[PolicyAnswer | None]:
        """The policy's line for each position, None where it is malformed."""
        prompts = [policy_prompt(fen, self.profile) for fen in fens]
        answers = await self.texts(prompts, temperature=temperature, seed=seed)
        return [
            line_of(answer, count_of(fen), self.profile)
            for fen, answer in zip(fens, answers, strict=True)
        ]

    async def moves(self, fens: Sequence[str]) -> list[str | None]:
        """The move chosen greedily in each position, None where it is none that can be played."""
        return [
            line.best if line is not None and line.best in legal_moves(fen) else None
            for fen, line in zip(fens, await self.lines(fens), strict=True)
        ]
