"""Episodes outside a run's sampler: a policy, or the solver, lives in houses."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from rlvr import GenerateRequest, Policy, Problem, SamplingParams, all_of
from rlvr_sad.household.commands import END
from rlvr_sad.household.episode import HouseEpisode
from rlvr_sad.household.solver import choose

MAX_TOKENS = 40
"""Of a turn: the longest one of the solver has 21 in the starter's tokens."""


@frozen(kw_only=True)
class Played:
    """
    A finished episode.

    Attributes:
        problem: What was asked.
        text: All of it: task, turns, observations, as one ReAct text.
        notes: Of the episode (`HouseEpisode.result`).
    """

    problem: Problem
    text: str
    notes: Mapping[str, Any]


async def play(
    policy: Policy,
    problems: Sequence[Problem],
    *,
    steps: int,
    temperature: float = 0.0,
    seed: int = 0,
) -> list[Played]:
    """An episode a problem, all of them at the same time, in the order of `problems`."""
    params = SamplingParams(max_tokens=MAX_TOKENS, temperature=temperature, stop=(END,))

    async def live(number: int, problem: Problem) -> Played:
        episode = HouseEpisode(problem, steps)
        episode.start(policy.tokenizer)
        tokens: list[int] = []
        text = ""
        while (messages := episode.prompt()) is not None:
            more = policy.tokenizer.render(messages, first=not tokens)
            if len(tokens) + len(more) + MAX_TOKENS > policy.context_length:
                break
            text += ("\n" if tokens else "") + "\n".join(m.content for m in messages)
            tokens += more
            own_seed = _seed(seed, number, len(tokens))
            completion = await policy.generate(
                GenerateRequest(prompt=tokens, params=params, seed=own_seed)
            )
            tokens += completion.tokens.tolist()
            text += completion.text + (END if completion.finish == "stop" else "")
            await episode.take(completion.text)
        return _played(episode, problem, text)

    return await all_of(live(n, problem) for n, problem in enumerate(problems))


async def play_solver(problem: Problem, *, steps: int, seed: int = 0) -> Played:
    """The solver's own episode."""
    episode, rng = HouseEpisode(problem, steps), random.Random(f"solver/{seed}/{problem.id}")
    text, begins = "", ""
    while (messages := episode.prompt()) is not None:
        turn = str(choose(episode.state, rng))
        text += begins + "\n".join(message.content for message in messages) + turn
        await episode.take(turn)
        begins = "\n"
    return _played(episode, problem, text)


def _played(episode: HouseEpisode, problem: Problem, text: str) -> Played:
    return Played(problem=problem, text=f"{text}\n{episode.seen}\n", notes=episode.result().notes)


def _seed(*parts: int) -> int:
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
