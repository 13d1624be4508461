"""The verifier of rlvr-cvdp as a judge, in any of its sandboxes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from judging.answers import Answer
from rlvr import BuildContext, ConfigError, Outcome, Reward, Trajectory
from rlvr.verification.runner import VerificationRunner
from rlvr.verification.verdict_cache import VerdictStore
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.task import STARTER
from rlvr_cvdp.verify.reward import CvdpReward


@frozen(kw_only=True)
class OurRun:
    """
    Outcomes in the order of the answers.

    Attributes:
        seconds: Wall time of the verdicts.
        opening_s: Wall time before that; a run pays it once.
    """

    outcomes: tuple[Outcome, ...]
    seconds: float
    opening_s: float


def config_of(options: Mapping[str, Any]) -> CvdpConfig:
    """
    The configuration with these options.

    Raises:
        ConfigError: An option of that name is not known.
    """
    known = {each.name for each in attrs.fields(CvdpConfig)}
    if unknown := sorted(set(options) - known):
        raise ConfigError(
            f"cvdp has no option {', '.join(unknown)}; it has: {', '.join(sorted(known))}"
        )
    return CvdpConfig(**options)


def our_options(sandbox: str, image: str = "") -> dict[str, Any]:
    """The options that choose a sandbox, with no limits of single problems measured elsewhere."""
    chosen = {"sandbox": sandbox, "limits": "off"}
    return {**chosen, "image": image} if image and sandbox == "docker" else chosen


async def judge_with_ours(
    answers: Sequence[Answer],
    *,
    workers: int,
    options: Mapping[str, Any],
    store: VerdictStore | None = None,
    repeat: int = 1,
    warm_up: int = 0,
) -> OurRun:
    """
    Judge the answers; those of one data set by one reward, as a run would.

    The first `warm_up` answers are judged once before the clock of `seconds` starts.
    """
    outcomes: dict[int, Outcome] = {}
    seconds = opening_s = 0.0
    for source in dict.fromkeys(answer.source for answer in answers):
        chosen = [(n, a) for n, a in enumerate(answers) if a.source == source]
        pairs = [(a.problem, Trajectory(problem_id=a.problem.id, files=a.files)) for _, a in chosen]
        async with contextlib.AsyncExitStack() as stack:
            begun = time.monotonic()
            reward = await _opened(source, workers, options, stack)
            scorer = VerificationRunner(
                reward=reward, workers=workers, store=store or VerdictStore()
            )
            await scorer.pairs(pairs[:warm_up])
            opened = time.monotonic()
            judged = await scorer.pairs(pairs * repeat)
            seconds += time.monotonic() - opened
            opening_s += opened - begun
        outcomes |= {n: outcome for (n, _), outcome in zip(chosen, judged, strict=False)}
    return OurRun(
        outcomes=tuple(outcomes[n] for n in range(len(answers))),
        seconds=seconds,
        opening_s=opening_s,
    )


async def _opened(
    source: Path, workers: int, options: Mapping[str, Any], stack: contextlib.AsyncExitStack
) -> CvdpReward:
    dataset = None if source == STARTER else source
    reward: Any = CvdpReward(config_of(options), BuildContext(dataset=dataset, workers=workers))
    if hasattr(reward, "__aenter__"):
        reward = await stack.enter_async_context(reward) or reward
    opened: CvdpReward = reward
    return opened


def is_right(outcome: Outcome) -> bool | None:
    """Whether the answer is right; None where no verdict could be made."""
    return outcome.score01 == 1.0 if isinstance(outcome, Reward) else None


def why(outcome: Outcome) -> str:
    """The reason in the verifier's own words."""
    if isinstance(outcome, Reward):
        return str(outcome.evidence.get("why") or "")
    return str(getattr(outcome, "reason", ""))
