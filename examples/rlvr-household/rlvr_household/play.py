"""Episodes of a policy or of the solver outside a run's sampler, and the figures of many."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from rlvr import GenerateRequest, Metric, Policy, Problem, SamplingParams, all_of
from rlvr_household.episode import HouseEpisode
from rlvr_household.solver import choose
from rlvr_household.state import END

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


Z = 1.959963984540054
"""Two-sided 95 % of the normal distribution."""
DRAWS = 2000
Notes = Sequence[Mapping[str, Any]]


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95 % score interval of a share (Wilson 1927): inside 0..1, sensible at 0 and n hits."""
    if not 0 <= hits <= n or n == 0:
        raise ValueError(f"{hits} of {n} is no share")
    share, square = hits / n, Z * Z
    centre = (share + square / (2 * n)) / (1 + square / n)
    half = Z / (1 + square / n) * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    return (0.0 if hits == 0 else centre - half), (1.0 if hits == n else centre + half)


def figures(episodes: Notes, note: str = "") -> list[Metric]:
    """
    The figures of finished episodes (`HouseEpisode.notes`).

    CoT-match is the share of turns whose reasoning is one that the solver may have there, word for
    word; `house/action_match` the same of the action. Shares and lengths are of turns, redrawn by
    episode.
    """
    done = sum(one["done"] for one in episodes)
    low, high = wilson(done, len(episodes))
    success = Metric(
        name="house/success",
        value=done / len(episodes),
        low=low,
        high=high,
        n=len(episodes),
        note=note,
    )
    solved = [one for one in episodes if one["done"]]
    turns = {
        "house/reasoning_tokens": "thought_tokens",
        "house/cot_match": "matched",
        "house/action_match": "sensible",
        "house/impossible": "impossible",
    }
    return [
        success,
        _ratio("house/steps", [(one["turns"], 1) for one in episodes], note),
        _ratio("house/steps_solved", [(one["turns"], 1) for one in solved], note),
        *(
            _ratio(n, [(one[key], one["turns"]) for one in episodes], note)
            for n, key in turns.items()
        ),
    ]


def _ratio(name: str, counts: Sequence[tuple[float, float]], note: str) -> Metric:
    """Sum over sum, with the bootstrap's 95 % over episodes; NaN where nothing was counted."""
    pairs = np.array(counts, dtype=float).reshape(-1, 2)  # (n, 2)
    if not pairs[:, 1].sum():
        nan = float("nan")
        return Metric(name=name, value=nan, low=nan, high=nan, n=0, note="no such episode")
    rows = np.random.default_rng(0).integers(0, len(pairs), (DRAWS, len(pairs)))
    above, below = pairs[rows].sum(1).T  # (DRAWS,)
    low, high = np.percentile(above[below > 0] / below[below > 0], [2.5, 97.5])
    value = pairs[:, 0].sum() / pairs[:, 1].sum()
    return Metric(name=name, value=value, low=low, high=high, n=len(pairs), note=note)
