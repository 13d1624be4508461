"""The small stages between the parts: admit, collate, consult, annotate, refine, update."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import numpy as np

from rlvr.abilities import Adaptive, Telling, TokenCredit
from rlvr.errors import BackendError, explain
from rlvr.parts import Advantage, Backend, Loss, Teacher
from rlvr.run.metrics import per_token
from rlvr.types import Datum, FloatArray, ScoredGroup, Trajectory

P = TypeVar("P")


def datum_of(
    trajectory: Trajectory, advantage: float = 0.0, labels: Mapping[str, str] | None = None
) -> Datum:
    """One trajectory as a training sequence: its advantage on every token the policy wrote."""
    mask = trajectory.mask
    return Datum(
        tokens=trajectory.tokens,
        mask=mask,
        logprobs=trajectory.logprobs,
        advantages=np.where(mask, np.float32(advantage), np.float32(0)),
        weights=mask.astype(np.float32),
        temperature=trajectory.temperature,
        problem_id=trajectory.problem_id,
        labels=labels or {},
    )


def admit(groups: Sequence[ScoredGroup], *, smallest: int) -> list[ScoredGroup]:
    """
    What training may see: trajectories with a reward, in groups of at least `smallest`.

    Unscorable and failed trajectories leave their group here, so they touch no baseline.
    """
    kept = (group.scored_only() for group in groups)
    return [group for group in kept if len(group.trajectories) >= smallest]


def collate(
    groups: Sequence[ScoredGroup], advantages_P_G: Sequence[Sequence[float | None]]
) -> list[Datum]:
    """Groups and their advantages (P, G) as data, without those of None or no policy tokens."""
    return [
        datum_of(trajectory, advantage, group.problem.labels)
        for group, advantages in zip(groups, advantages_P_G, strict=True)
        for trajectory, advantage in zip(group.trajectories, advantages, strict=True)
        if advantage is not None and trajectory.mask.any()
    ]


async def consult(
    teachers: Mapping[str, Teacher], parts: Sequence[Any], data: list[Datum]
) -> list[Datum]:
    """
    Add what each teacher that a part needs says of the policy's tokens, by its annotation.

    Raises:
        BackendError: A teacher gave something else than one finite number a token.
    """
    needs = {name for part in parts for name in getattr(part, "needs", ())}
    for name, teacher in teachers.items():
        if data and name in needs:
            by_teacher = await teacher.logprobs(data)
            check_scores(teacher, data, by_teacher)
            data = _with_annotation(data, name, by_teacher)
    return data


def check_scores(teacher: Teacher, data: Sequence[Datum], by_teacher: Sequence[FloatArray]) -> None:
    """
    Refuse a teacher's numbers that nothing can be learnt from.

    Raises:
        BackendError: One is missing or not finite.
    """
    if len(by_teacher) != len(data):
        problem = f"{len(by_teacher)} answers for {len(data)} trajectories"
    else:
        problem = next(
            (
                f"{_fault(values, datum)} (problem {datum.problem_id})"
                for values, datum in zip(by_teacher, data, strict=True)
                if _fault(values, datum)
            ),
            "",
        )
    if problem:
        raise BackendError(
            explain(
                f"teacher {teacher.name} was asked for the logprobs of what the policy wrote.",
                f"found: {problem}",
                "run TeacherContract on it; a model in too low a precision can give NaN",
            )
        )


def _fault(values: FloatArray, datum: Datum) -> str:
    if np.shape(values) != datum.tokens.shape:
        return f"shape {np.shape(values)} for {len(datum.tokens)} tokens"
    return "" if np.isfinite(values[datum.mask]).all() else "a value that is not finite"


def _with_annotation(data: Sequence[Datum], name: str, values: Sequence[FloatArray]) -> list[Datum]:
    return [
        attrs.evolve(d, annotations={**d.annotations, name: np.asarray(v, np.float32)})
        for d, v in zip(data, values, strict=True)
    ]


async def annotate(backend: Backend, data: list[Datum], needs: Iterable[str]) -> list[Datum]:
    """Add the numbers (T,) by every other model that a part needs; what is there already stays."""
    for which in sorted(needs):
        if all(which in d.annotations for d in data):
            continue
        data = _with_annotation(data, which, await backend.logprobs(data, which))
    return data


async def refine(backend: Backend, advantage: Advantage, data: list[Datum]) -> list[Datum]:
    """
    The last word of an advantage that has one token by token (`TokenCredit`).

    Comes before the loss's annotations, because it may make some of them ("return").
    """
    if not isinstance(advantage, TokenCredit):
        return data
    return advantage.refine(await annotate(backend, data, advantage.needs))


def told(advantage: Advantage, data: Sequence[Datum]) -> Mapping[str, float]:
    """An advantage's own numbers of what is trained on."""
    return advantage.numbers(data) if data and isinstance(advantage, Telling) else {}


def recalled(part: P, memory: Mapping[str, float]) -> P:
    """The part with the settings of an adaptive part's memory."""
    return part.recalled(memory) if isinstance(part, Adaptive) else part


def adapted(
    parts: Mapping[str, Any],
    memory: Mapping[str, Mapping[str, Any]],
    metrics: Mapping[str, float],
) -> dict[str, Mapping[str, Any]]:
    """What the adaptive ones of the parts, by kind, keep of a step's metrics."""
    return {
        kind: part.adapted(memory.get(kind, {}), metrics)
        for kind, part in parts.items()
        if isinstance(part, Adaptive)
    }


async def update(
    backend: Backend, parts: Sequence[Sequence[Datum]], loss: Loss
) -> list[dict[str, float]]:
    """One optimiser update a part, each checked before it is sent; the metrics of each."""
    for part in parts:
        check_data(part)
    return [
        per_token(await backend.step(part, loss), sum(float(d.weights.sum()) for d in part))
        for part in parts
    ]


def check_data(data: Sequence[Datum]) -> None:
    """
    Refuse data that no backend should see.

    Raises:
        BackendError: An array differs in length, a value is not finite, or a token id is negative.
    """
    for datum in data:
        length = len(datum.tokens)
        arrays: Mapping[str, np.ndarray] = {
            "mask": datum.mask,
            "logprobs": datum.logprobs,
            "advantages": datum.advantages,
            "weights": datum.weights,
            **datum.annotations,
        }
        for name, values in arrays.items():
            if len(values) != length:
                problem = f"{name} has {len(values)} entries for {length} tokens"
            elif not np.isfinite(np.asarray(values, np.float64)).all():
                problem = f"{name} has a value that is not finite"
            else:
                continue
            raise BackendError(
                explain(
                    "data were not sent to the backend.",
                    f"found: problem {datum.problem_id}: {problem}",
                    "do: check the reward and the advantage of this problem",
                )
            )
        if length and int(datum.tokens.min()) < 0:
            raise BackendError(
                explain(
                    "data were not sent to the backend.",
                    f"found: problem {datum.problem_id}: a negative token id",
                    "do: check the tokenizer of the sampler",
                )
            )
