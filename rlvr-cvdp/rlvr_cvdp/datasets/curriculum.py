"""Chooses the problems of a training step, by `cvdp.curriculum` and `cvdp.weak`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, TypeAlias

from attrs import frozen

from rlvr import Curriculum, Problem, by_pass_rate, by_stages, by_weight
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.datasets.strengths import Audited, doubt_weights, strength_weights

DIFFICULTIES = ("easy", "medium", "hard")
CATEGORIES = ("cid003", "cid004", "cid016", "cid002", "cid007", "cid005")
"""By the mean pass@1 of the models in the benchmark's paper (arXiv:2506.14074), highest first."""


def option_of(config: CvdpConfig) -> str:
    """The option that asks for an order of training; "" if problems come in epochs."""
    if config.curriculum != "none":
        return f"cvdp.curriculum={config.curriculum}"
    return "cvdp.weak=weigh" if config.weak == "weigh" else ""


@frozen
class TrainingOrder(Curriculum):
    """The order that `option_of` names."""

    config: CvdpConfig
    audit: Mapping[str, Audited]

    def choose(
        self, problems: Sequence[Problem], count: int, *, seed: int, step: int, **now: Any
    ) -> Sequence[Problem]:
        """The problems of a training step."""
        config = self.config
        weights, stages = _facts_of(problems, config, self.audit)
        if config.curriculum in ("difficulty", "category"):
            return by_stages(
                problems,
                count,
                stages=stages,
                ramp_steps=config.curriculum_steps,
                seed=seed,
                step=step,
                weights=weights,
            )
        if config.curriculum == "pass-rate":
            return by_pass_rate(
                problems,
                count,
                seed=seed,
                step=step,
                target=config.target_rate,
                weights=weights,
                **now,
            )
        return by_weight(problems, count, weights=weights or {}, seed=seed, step=step)


Facts: TypeAlias = tuple[Mapping[str, float] | None, Mapping[str, int]]
_last: tuple[object, object, object, Facts] | None = None


def _facts_of(
    problems: Sequence[Problem], config: CvdpConfig, audit: Mapping[str, Audited]
) -> Facts:
    """Weights and stages of the problems; those of the last tuple of problems are kept."""
    global _last
    if _last is not None and all(map(is_, _last, (problems, config, audit))):
        return _last[3]
    names, weights = [problem.id for problem in problems], None
    stages: Mapping[str, int] = {}
    if config.curriculum in ("difficulty", "category"):
        stages = stages_of(problems, config.curriculum, config.stages)
    if config.weak == "weigh" and config.curriculum != "strength":
        weights = doubt_weights(audit, names)
    elif config.curriculum in ("none", "strength"):
        weights = strength_weights(audit, names)
    if isinstance(problems, tuple):
        _last = (problems, config, audit, (weights, stages))
    return weights, stages


def stages_of(problems: Sequence[Problem], label: str, order: Sequence[str]) -> dict[str, int]:
    """Problem id to its place in the order; values that the order does not name come last."""
    order = order or (DIFFICULTIES if label == "difficulty" else CATEGORIES)
    place = {value: i for i, value in enumerate(order)}
    return {p.id: place.get(p.labels.get(label, ""), len(order)) for p in problems}
