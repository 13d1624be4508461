"""Questions to a policy outside a run's sampler: many prompts, one completion each."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from rlvr.parts import Policy
from rlvr.types import Completion, GenerateRequest, Message, SamplingParams

AT_ONCE = 512
"""Prompts a call: enough to fill a batch, few enough to be interrupted."""


async def ask(
    policy: Policy,
    prompts: Sequence[str],
    *,
    max_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
) -> list[Completion]:
    """
    One completion a prompt, in order; greedy unless a temperature is given.

    Each prompt has a seed of its own, made of `seed` and its place.
    """
    params = SamplingParams(max_tokens=max_tokens, temperature=temperature)
    requests = [
        GenerateRequest(
            prompt=policy.tokenizer.render([Message(role="user", content=prompt)]),
            params=params,
            seed=seed_of(seed, place),
        )
        for place, prompt in enumerate(prompts)
    ]
    answers: list[Completion] = []
    for start in range(0, len(requests), AT_ONCE):
        answers += await policy.generate(requests[start : start + AT_ONCE])
    return answers


def seed_of(*parts: int | str) -> int:
    """A seed (63 bits) made of anything that prints; equal parts give an equal one."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def answer_text(completion: Completion) -> str | None:
    """What the policy said; None where it was cut off, which no grammar accepts."""
    return None if completion.finish != "stop" else completion.text
