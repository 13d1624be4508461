"""Compare runs: their curves, summaries of the curves, and the settings that differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeGuard

from attrs import frozen

from rlvr.config.layers import DEFAULT, without_gone
from rlvr.evaluation.compare_models import Paired, paired
from rlvr.records.read_runs import RunRecord

Better = Literal["high", "low", ""]
Points = tuple[tuple[int, float], ...]
"""Steps and values, by step."""

STEP_S = "time/step_s"
PASS1 = "pass@1"


@frozen
class Curve:
    """
    A number that is followed over the steps of a run.

    Attributes:
        metric: Its name in `metrics.jsonl`; `time/step_s` and `pass@1` are worked out here.
        title: What it is, with its unit.
        better: Which end of it is better; "": neither.
    """

    metric: str
    title: str
    better: Better = ""


CURVES = (
    Curve("reward/mean", "mean reward", "high"),
    Curve("reward/pass", "pass rate", "high"),
    Curve(PASS1, "pass@1 of evaluations", "high"),
    Curve("kl/reference", "KL to the reference (nats)"),
    Curve("kl/sampler", "KL to the sampler (nats)"),
    Curve("mismatch/kl", "sampler against trainer (nats)"),
    Curve("sampler/length_mean", "mean length (tokens)"),
    Curve(STEP_S, "time a step (s)", "low"),
)


@frozen(kw_only=True)
class Summary:
    """
    Summary of a curve of one run.

    Attributes:
        steps: Number of its points.
        last: Its last value.
        best: Its best value; None if no end of it is better.
        best_step: The first step with that value.
        late: Mean over the last quarter of its points, rounded up.
    """

    steps: int
    last: float
    best: float | None
    best_step: int | None
    late: float


@frozen(kw_only=True)
class Difference:
    """A setting, its value in each run (None: it has none), and the layer each came from."""

    key: str
    values: tuple[Any, ...]
    origins: tuple[str, ...]


def points(run: RunRecord, metric: str) -> Points:
    """A curve of a run; () if it has none. Values that are no finite numbers are left out."""
    if metric == STEP_S:
        return tuple(_step_seconds(points(run, "time/total_s")))
    source, name = (run.evaluations, "pass1") if metric == PASS1 else (run.metrics, metric)
    found: dict[int, float] = {}
    for record in source:
        step, value = record.get("step"), record.get(name)
        if isinstance(step, int) and _is_finite(value):
            found[step] = value  # of a step written twice, the later line counts
    return tuple(sorted(found.items()))


def summary(curve: Points, better: Better) -> Summary | None:
    """Summary of a curve; None if it is empty."""
    if not curve:
        return None
    best = None
    if better:
        sign = -1.0 if better == "high" else 1.0
        best = min(curve, key=lambda point: (sign * point[1], point[0]))
    late = [value for _, value in curve[-math.ceil(len(curve) / 4) :]]
    return Summary(
        steps=len(curve),
        last=curve[-1][1],
        best=best[1] if best else None,
        best_step=best[0] if best else None,
        late=sum(late) / len(late),
    )


def config_differences(runs: Sequence[RunRecord]) -> list[Difference]:
    """
    Options whose values differ, by key.

    One at its default, whose namespace other runs lack, says only that a run has a part more: the
    option of `run` that names the part tells it.
    """
    configs = [without_gone(_mapping(run.record, "config")) for run in runs]
    origins = [_mapping(run.record, "origin") for run in runs]
    return [
        Difference(
            key=key,
            values=tuple(config.get(key) for config in configs),
            origins=tuple(str(origin.get(key, "")) for origin in origins),
        )
        for key in sorted({key for config in configs for key in config})
        if _differ([config.get(key, ...) for config in configs])
        and not _is_of_a_part_more(key, configs, origins)
    ]


def _is_of_a_part_more(
    key: str, configs: Sequence[Mapping[str, Any]], origins: Sequence[Mapping[str, Any]]
) -> bool:
    place = key.rpartition(".")[0]
    lacks = [all(k.rpartition(".")[0] != place for k in config) for config in configs]
    own = [o.get(key) for o, is_without in zip(origins, lacks, strict=True) if not is_without]
    return any(lacks) and all(origin == DEFAULT for origin in own)


def identity_differences(runs: Sequence[RunRecord]) -> list[Difference]:
    """Other differences: data set, versions, and keys of `run.json` outside its options."""
    told = [dict(_identity(run)) for run in runs]
    return [
        Difference(key=key, values=tuple(t.get(key) for t in told), origins=("",) * len(runs))
        for key in dict.fromkeys(key for t in told for key in t)
        if _differ([t.get(key) for t in told])
    ]


def last_evaluations(this: RunRecord, against: RunRecord) -> Paired | None:
    """Two runs' last evaluations, paired by problem; None if they have no problem in common."""
    verdicts = []
    for run in (this, against):
        scores = _mapping(run.evaluations[-1], "scores") if run.evaluations else {}
        verdicts.append({p: [x == 1 for x in s] for p, s in scores.items() if isinstance(s, list)})
    if not any(samples and verdicts[1].get(p) for p, samples in verdicts[0].items()):
        return None
    return paired(verdicts[0], verdicts[1])


def _step_seconds(totals: Points) -> Iterator[tuple[int, float]]:
    """Time of each step; those after a gap in the steps are left out."""
    before = (0, 0.0)
    for step, total in totals:
        if step == before[0] + 1:
            yield step, total - before[1]
        before = (step, total)


def _is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _identity(run: RunRecord) -> Iterator[tuple[str, Any]]:
    config = _mapping(run.record, "config")
    for key in ("plugin", "task", "algo", "model", "seed", "steps"):
        if f"run.{key}" not in config or key in ("plugin", "task"):
            yield key, run.record.get(key)
    for key in ("dataset", "dataset_hash", "problems"):
        yield key, run.record.get(key)
    for name, version in sorted(_mapping(run.record, "versions").items()):
        yield f"version of {name}", version


def _mapping(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = record.get(key)
    return found if isinstance(found, dict) else {}


def _differ(values: Sequence[Any]) -> bool:
    return any(value != values[0] for value in values[1:])
