"""A contest of judges: the same answers, as many at a time, in turns that change."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from judging.answers import Answer
from judging.official import OfficialRunner
from judging.ours import is_right, judge_with_ours
from judging.plain import judge_plainly


@frozen(kw_only=True)
class Turn:
    """One contestant's judging of all answers once."""

    seconds: float
    verdicts: tuple[bool | None, ...]
    opening_s: float = 0.0


Judge = Callable[[Sequence[Answer], int], Turn]


def plain_turn(answers: Sequence[Answer], workers: int) -> Turn:
    """The plain way."""
    begun = time.monotonic()
    verdicts = asyncio.run(judge_plainly(answers, workers=workers))
    seconds = time.monotonic() - begun
    return Turn(seconds=seconds, verdicts=tuple(verdict.is_right for verdict in verdicts))


def our_turns(options: Mapping[str, Any]) -> Judge:
    """Ours; sandboxes are opened, and one answer a worker judged, before the clock starts."""

    def judge(answers: Sequence[Answer], workers: int) -> Turn:
        run = asyncio.run(
            judge_with_ours(answers, workers=workers, options=options, warm_up=workers)
        )
        verdicts = tuple(is_right(outcome) for outcome in run.outcomes)
        return Turn(seconds=run.seconds, verdicts=verdicts, opening_s=run.opening_s)

    return judge


def official_turns(runner: OfficialRunner) -> Judge:
    """The official runner, whole commands."""

    def judge(answers: Sequence[Answer], workers: int) -> Turn:
        with tempfile.TemporaryDirectory(prefix="rlvr-bench-", ignore_cleanup_errors=True) as at:
            run = evolve(runner, threads=workers).judge(answers, Path(at) / "run")
        verdicts = tuple(v.is_right if v.ran else None for v in run.verdicts)
        return Turn(seconds=run.seconds, verdicts=verdicts)

    return judge


def compete(
    judges: Mapping[str, Judge], answers: Sequence[Answer], workers: int, rounds: int
) -> dict[str, list[Turn]]:
    """Each judge once a round; who begins changes. One answer each comes before, not measured."""
    names = list(judges)
    for name in names:
        judges[name](answers[:1], workers)
    turns: dict[str, list[Turn]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            turns[name].append(judges[name](answers, workers))
    return turns


def summary(turns: Mapping[str, Sequence[Turn]], answers: Sequence[Answer]) -> dict[str, Any]:
    """Rates, ratios of ours to the others, and whether all said the same."""
    first = {name: each[0].verdicts for name, each in turns.items()}
    unequal = [
        f"{answer.name}: " + ", ".join(f"{name} {first[name][place]}" for name in first)
        for place, answer in enumerate(answers)
        if len({first[name][place] for name in first}) > 1
    ]
    ratios = {
        f"{one} / {other}": spread(
            [b.seconds / a.seconds for a, b in zip(turns[one], turns[other], strict=True)]
        )
        for one in ("fresh", "warm", "docker")
        for other in ("plain", "official")
        if one in turns and other in turns
    }
    return {
        "answers": len(answers),
        "right": sum(verdict is True for verdict in first["warm"]),
        "per_second": {
            name: spread([len(answers) / turn.seconds for turn in each])
            for name, each in turns.items()
        },
        "opening_s": {
            name: round(statistics.median(turn.opening_s for turn in each), 2)
            for name, each in turns.items()
            if each[0].opening_s
        },
        "ratios": ratios,
        "unequal_verdicts": unequal,
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and ends."""
    return {
        "median": round(statistics.median(values), 3),
        "least": round(min(values), 3),
        "most": round(max(values), 3),
    }
