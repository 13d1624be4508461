"""
The curriculum `complexity`: easy trajectories first, by the measure of SAD's paper.

C(tau) = a |reasoning| + b |action| + c H (arXiv:2505.13820, Eq. 7 of v1). The paper names no pace;
ours opens the share c(u) = min(1, c0 + (1 - c0) (u / U)^p) of the easiest at step u. Lengths are
characters over the mean length of a trajectory, H is the teacher's mean entropy in nats.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
from attrs import frozen
from attrs.validators import ge, gt, le

from rlvr import BuildContext, ConfigError, Curriculum, Problem, epochs, option
from rlvr_sad.sessions.ref import TrajectoryRef
from rlvr_sad.teacher_cache.answers import entropies

log = structlog.get_logger(__name__)


@frozen(kw_only=True)
class ComplexityOptions:
    """Options of the curriculum complexity."""

    reasoning: float = option(1.0, "Weight of the length of reasoning", validator=ge(0))
    action: float = option(1.0, "Weight of the length of actions", validator=ge(0))
    entropy: float = option(1.0, "Weight of the teacher's mean entropy, nats", validator=ge(0))
    cache: str = option(
        "", "Folder of rlvr sad cache-teacher that knows the entropies; empty: they count as 0"
    )
    start: float = option(
        0.3, "Share of trajectories, easiest first, for the first step", validator=[gt(0), le(1)]
    )
    ramp_steps: int = option(
        0, "Steps until all take part; 0: half of the run", unit="steps", validator=ge(0)
    )
    power: float = option(1.0, "Above 1 stages open late, below 1 early", validator=gt(0))


class ByComplexity(Curriculum):
    """Problems of the easiest share, which grows until all take part; then epochs of all."""

    def __init__(self, config: ComplexityOptions, context: BuildContext) -> None:
        self._config = config
        self._ramp = config.ramp_steps or max(1, math.ceil(context.steps / 2))
        self._entropies = _entropies(config)
        self._is_checked = False

    def choose(
        self, problems: Sequence[Problem], count: int, *, seed: int, step: int, **now: Any
    ) -> Sequence[Problem]:
        """
        `count` of the share that is open at the step, none twice where there are as many.

        Raises:
            ConfigError: The problems are no recorded trajectories, or the cache knows none of them.
        """
        if step >= self._ramp:
            return epochs(problems, count, seed=seed, step=step - self._ramp)
        found = complexities(problems, self._config, self._entropies)
        self._check(problems)
        order = sorted(problems, key=lambda p: (found[p.id], p.id))
        open_ = order[: max(1, math.ceil(self.share(step) * len(order)))]
        draw = random.Random(f"{seed} complexity {step}")
        chosen: list[Problem] = []
        while len(chosen) < count:
            chosen += draw.sample(open_, min(len(open_), count - len(chosen)))
        return chosen

    def _check(self, problems: Sequence[Problem]) -> None:
        """Refuse a cache that knows none of the trajectories; warn once of those it lacks."""
        if self._is_checked or not self._config.cache or self._config.entropy == 0.0:
            return
        self._is_checked = True
        missing = [p.id for p in problems if p.digest not in self._entropies]
        if len(missing) == len(problems):
            raise ConfigError(
                f"the curriculum complexity was to know entropies from {self._config.cache}.",
                "found: it knows none of these trajectories",
                "make it of these files, with the same sad.* options: rlvr sad cache-teacher",
            )
        if missing:
            log.warning(
                "entropies_missing",
                trajectories=len(missing),
                of=len(problems),
                first=missing[0],
                why="the cache does not know them: their entropies count as 0",
                do="rlvr sad cache-teacher again, with all files of the run",
            )

    def share(self, step: int) -> float:
        """The share of the easiest that is open at a step (0-based)."""
        start = self._config.start
        done = min(step / self._ramp, 1.0)
        return min(1.0, start + (1.0 - start) * done**self._config.power)


def complexities(
    problems: Sequence[Problem], config: ComplexityOptions, entropies: Mapping[str, float]
) -> dict[str, float]:
    """
    Problem id to complexity.

    Args:
        problems: Recorded trajectories.
        config: The weights.
        entropies: Mean entropy of the teacher by `Problem.digest`, nats; 0 where it is missing.

    Raises:
        ConfigError: The problems are no recorded trajectories.
    """
    strange = next((p for p in problems if not isinstance(p.payload, TrajectoryRef)), None)
    if strange is not None:
        raise ConfigError(
            "the curriculum complexity goes by the spans of recorded trajectories.",
            f"found: problem {strange.id} is none",
            "use it with --plugin sad --dataset FILES, or choose another --curriculum",
        )
    mean = sum(p.payload.reasoning + p.payload.action for p in problems) / len(problems)
    return {
        p.id: (config.reasoning * p.payload.reasoning + config.action * p.payload.action)
        / max(mean, 1.0)
        + config.entropy * entropies.get(p.digest, 0.0)
        for p in problems
    }


def _entropies(config: ComplexityOptions) -> Mapping[str, float]:
    if config.entropy == 0.0:
        return {}
    if config.cache:
        return entropies(Path(config.cache.removeprefix("file:")))
    log.warning(
        "entropies_unknown",
        why="the curriculum complexity has no teacher's cache: entropies count as 0",
        do="rlvr sad cache-teacher, then curriculum.cache=DIR; or curriculum.entropy=0",
    )
    return {}
