"""The built-in curricula, for any task: epochs, difficulty, pass-rate, strength.

Each chooses with a function of `rlvr.curriculum.choices`: the choice depends only on (problems,
seed, step, history), so a resumed run goes on exactly. Stages and weights of the last problems
are kept, as a run asks for the same ones at each step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen
from attrs.validators import ge, gt, le
from numpy.typing import NDArray

from rlvr.config.fields import option
from rlvr.curriculum.choices import by_pass_rate, by_stages, epochs, rates_of
from rlvr.curriculum.orders import in_line
from rlvr.curriculum.pool import Pool, pool_of
from rlvr.errors import ConfigError
from rlvr.parts import BuildContext, Curriculum
from rlvr.suggest import did_you_mean
from rlvr.types import Problem
from rlvr.verifier_audit.findings import read_strengths

DIFFICULTIES = ("easy", "medium", "hard")
_NAMED = 12


@frozen(kw_only=True)
class DifficultyOptions:
    """Options of the curriculum difficulty."""

    label: str = option("difficulty", "Label of the problems that says their stage")
    stages: tuple[str, ...] = option(
        (),
        "Values of the label in order; other values come last; empty: easy,medium,hard",
    )
    ramp_steps: int = option(
        100, "Steps until all stages take part in full", unit="steps", validator=ge(0)
    )


@frozen(kw_only=True)
class PassRateOptions:
    """Options of the curriculum pass-rate."""

    target: float = option(0.5, "Pass rate of the preferred problems", validator=[ge(0), le(1)])
    explore: float = option(
        0.25,
        "Share of a step for problems never met, while there are any",
        validator=[gt(0), le(1)],
    )


@frozen(kw_only=True)
class StrengthOptions:
    """Options of the curriculum strength."""

    audit: str = option("", "File of rlvr audit with the strength of each problem's verifier")


class Epochs(Curriculum):
    """Each problem once, in a seeded order, before any comes twice; the task has no say."""

    def choose(self, problems: Sequence[Problem], count: int, **now: Any) -> Sequence[Problem]:
        """The next problems of the epoch."""
        return epochs(problems, count, seed=now["seed"], step=now["step"])


class ByDifficulty(Curriculum):
    """Stages by a label of the problems: the first alone, then a growing share of the next."""

    def __init__(self, config: DifficultyOptions, context: BuildContext) -> None:
        self._config = config
        self._stages = lru_cache(maxsize=1)(self._stages_of)

    def choose(self, problems: Sequence[Problem], count: int, **now: Any) -> Sequence[Problem]:
        """
        Problems of the stages that are open.

        Raises:
            ConfigError: No problem has the label, or a stage is no value of it.
        """
        return by_stages(
            problems,
            count,
            stages=self._stages(pool_of(problems)),
            ramp_steps=self._config.ramp_steps,
            seed=now["seed"],
            step=now["step"],
        )

    def _stages_of(self, pool: Pool) -> dict[str, int]:
        problems = pool.problems
        label, order = self._config.label, self._config.stages or DIFFICULTIES
        sizes = Counter(p.labels[label] for p in problems if p.labels.get(label))
        if not sizes:
            raise _no_label(label, problems)
        unknown = [stage for stage in order if stage not in sizes]
        if unknown and (self._config.stages or len(unknown) == len(order)):
            raise _no_stage(unknown[0], label, sizes)
        place = {value: i for i, value in enumerate(order)}
        return {p.id: place.get(p.labels.get(label, ""), len(order)) for p in problems}


class ByPassRate(Curriculum):
    """Problems near a pass rate first; always or never solved ones seldom, new ones in between."""

    def __init__(self, config: PassRateOptions, context: BuildContext) -> None:
        self._config = config

    def choose(self, problems: Sequence[Problem], count: int, **now: Any) -> Sequence[Problem]:
        """The most pressing problems, and some never met."""
        config = self._config
        return by_pass_rate(problems, count, target=config.target, explore=config.explore, **now)


class ByStrength(Curriculum):
    """Problems as often as an audit found their verifier strong; unknown ones count as the mean."""

    def __init__(self, config: StrengthOptions, context: BuildContext) -> None:
        if not config.audit:
            raise ConfigError(
                "the curriculum strength goes by an audit.",
                "found: no file of one (curriculum.audit is empty)",
                "make one with: rlvr audit --plugin NAME --out AUDIT.json, "
                "then add curriculum.audit=AUDIT.json",
            )
        self._path = config.audit
        self._strengths = read_strengths(Path(config.audit), "curriculum.audit")
        self._rates = lru_cache(maxsize=1)(self._rates_of)

    def choose(self, problems: Sequence[Problem], count: int, **now: Any) -> Sequence[Problem]:
        """
        Each problem as often as its strength says.

        Raises:
            ConfigError: The audit knows the strength of none of the problems.
        """
        pool, position = pool_of(problems), now["step"] * count
        return pool.at(in_line(pool.keys, self._rates(pool), position, count, now["seed"]))

    def _rates_of(self, pool: Pool) -> NDArray[np.float64]:
        problems = pool.problems
        known = {p.id: s for p in problems if (s := self._strengths.get(p.id)) is not None}
        if not known:
            held = sum(p.id in self._strengths for p in problems)
            raise ConfigError(
                f"training by the audit {self._path} was asked for (curriculum.audit).",
                f"found: it has {held} of the {len(problems)} problems, and the strength of "
                "none of them",
                "audit these problems: rlvr audit with the same --plugin and --dataset",
            )
        usual = sum(known.values()) / len(known)
        return rates_of(np.array([known.get(p.id, usual) for p in problems]))


def _no_label(label: str, problems: Sequence[Problem]) -> ConfigError:
    others = sorted({name for p in problems for name, value in p.labels.items() if value})
    there = f"{', '.join(others) or 'none'}    {did_you_mean(label, others)}".rstrip()
    return ConfigError(
        f"the curriculum difficulty goes by the label {label!r} (curriculum.label).",
        f"found: none of {len(problems)} problems has it; their labels: {there}",
        "name one of these with curriculum.label=NAME, or choose another --curriculum",
    )


def _no_stage(stage: str, label: str, sizes: Mapping[str, int]) -> ConfigError:
    values = sorted(sizes)
    shown = ", ".join(f"{value} ({sizes[value]})" for value in values[:_NAMED])
    more = f" and {len(values) - _NAMED} more" if len(values) > _NAMED else ""
    return ConfigError(
        f"the curriculum difficulty has a stage {stage!r} (curriculum.stages).",
        f"found: no problem whose {label} it is; there are: {shown}{more}"
        f"    {did_you_mean(stage, values)}".rstrip(),
        "name these in their order: curriculum.stages=" + ",".join(values[:_NAMED]),
    )
