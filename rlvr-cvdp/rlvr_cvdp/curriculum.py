"""Which problems a training step takes: `cvdp.curriculum` and `cvdp.weak`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlvr.curriculum import by_pass_rate, by_stages, by_weight, epochs
from rlvr.types import PassRate, Problem
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.strengths import Audited, doubt_weights, strength_weights

DIFFICULTIES = ("easy", "medium", "hard")
CATEGORIES = ("cid003", "cid004", "cid016", "cid002", "cid007", "cid005")
"""By the mean pass@1 of the models in the benchmark's paper (arXiv:2506.14074), highest first."""


def choose_problems(
    config: CvdpConfig,
    audit: Mapping[str, Audited],
    problems: Sequence[Problem],
    count: int,
    *,
    seed: int,
    step: int,
    history: Mapping[str, PassRate],
) -> Sequence[Problem]:
    """`count` of the problems: a pure function, so that a resumed run goes on as it would have."""
    names = [problem.id for problem in problems]
    weights = doubt_weights(audit, names) if config.weak == "weigh" else None
    kind = config.curriculum
    if kind == "strength":
        return by_weight(
            problems, count, weights=strength_weights(audit, names), seed=seed, step=step
        )
    if kind in ("difficulty", "category"):
        return by_stages(
            problems,
            count,
            stages=stages_of(problems, kind, config.stages),
            ramp_steps=config.curriculum_steps,
            seed=seed,
            step=step,
            weights=weights,
        )
    if kind == "pass-rate":
        return by_pass_rate(
            problems,
            count,
            history=history,
            seed=seed,
            step=step,
            target=config.target_rate,
            weights=weights,
        )
    if weights is not None:
        return by_weight(problems, count, weights=weights, seed=seed, step=step)
    return epochs(problems, count, seed=seed, step=step)


def stages_of(problems: Sequence[Problem], label: str, order: Sequence[str]) -> dict[str, int]:
    """Problem id to its place in the order; what the order does not name comes last."""
    order = order or (DIFFICULTIES if label == "difficulty" else CATEGORIES)
    place = {value: i for i, value in enumerate(order)}
    return {p.id: place.get(p.labels.get(label, ""), len(order)) for p in problems}
