"""The small stages of a step between the parts: admit, collate, consult, annotate, update, ..."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from rlvr.border.abilities import adapted_by, annotated, numbers_of
from rlvr.border.calls import Border
from rlvr.border.promises import logprobs_of
from rlvr.checks import check_data
from rlvr.parts import Advantage, Backend, Loss, Needs, Task, Teacher
from rlvr.teachers.requests import answered, with_actual
from rlvr.training.metrics import per_token
from rlvr.types import Datum, FloatArray, Message, ScoredGroup, Trajectory

_SAME = "the same data, order kept"


def datum_of(
    trajectory: Trajectory,
    advantage: float = 0.0,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, Any] | None = None,
    prompt: Sequence[Message] = (),
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
        annotations={k: np.asarray(v, np.float32) for k, v in (annotations or {}).items()},
        labels=labels or {},
        prompt=prompt,
        pictures=trajectory.pictures,
    )


def admit(groups: Sequence[ScoredGroup], *, smallest: int) -> list[ScoredGroup]:
    """
    Trajectories with a reward, in groups of at least `smallest`; training sees only these.

    Unscorable and failed trajectories leave their group here, so they touch no baseline.
    """
    kept = (group.scored_only() for group in groups)
    return [group for group in kept if len(group.trajectories) >= smallest]


def collate(
    groups: Sequence[ScoredGroup],
    advantages_P_G: Sequence[Sequence[float | None]],
    task: Task,
) -> list[Datum]:
    """
    Groups and their advantages (P, G) as data, without those of None or no policy tokens.

    The task adds what it knows of each token (`Task.annotate`).
    """
    return [
        datum_of(
            trajectory,
            advantage,
            group.problem.labels,
            annotated(task, group.problem, trajectory),
            trajectory.messages or group.problem.prompt,
        )
        for group, advantages in zip(groups, advantages_P_G, strict=True)
        for trajectory, advantage in zip(group.trajectories, advantages, strict=True)
        if advantage is not None and trajectory.mask.any()
    ]


async def ask_teachers(
    teachers: Mapping[str, Teacher], needs: Needs, data: list[Datum]
) -> list[Datum]:
    """
    Ask the teachers about the policy's tokens, and add their answers to the data by annotation.

    Each gives the numbers (T,) and the distributions that are needed of it. One answer serves both
    where it holds both (`teachers.requests.with_actual`).

    Raises:
        BackendError: A teacher gave something else than one finite number a token, or a
            distribution that is none.
    """
    asks = needs.distributions
    for name in dict.fromkeys([*asks, *teachers]) if data else ():
        teacher, ask = teachers[name], asks.get(name)
        if name in needs.annotations and teacher.capabilities.reads_data:
            data = await answered(teacher, data, name, None)
        if ask is not None:
            data = await answered(teacher, data, name, ask)
        if name in needs.annotations and not teacher.capabilities.reads_data:
            known = with_actual(data, name, ask) if ask is not None else None
            data = known or await answered(teacher, data, name, None)
    return data


def _with_annotation(data: Sequence[Datum], name: str, values: Sequence[FloatArray]) -> list[Datum]:
    return [
        attrs.evolve(d, annotations={**d.annotations, name: np.asarray(v, np.float32)})
        for d, v in zip(data, values, strict=True)
    ]


async def annotate(backend: Backend, data: list[Datum], needs: Needs) -> list[Datum]:
    """
    Add the numbers (T,) of each other model that is needed, unless they are there already.

    Annotations that the advantage makes itself (`Needs.provides`) are not asked for.
    """
    for which in sorted(needs.annotations - needs.provides):
        if all(which in d.annotations for d in data):
            continue
        data = _with_annotation(data, which, await logprobs_of(backend, data, which))
    return data


def token_advantages(advantage: Advantage, data: list[Datum]) -> list[Datum]:
    """The data with the advantages of each token; they have all annotations that are needed."""
    return _remade(Border(advantage, "advantage", "per_token", promised=_SAME), data)


def token_weights(loss: Loss, data: Sequence[Datum]) -> list[Datum]:
    """The data of one update with what each token counts for the loss."""
    return _remade(Border(loss, "loss", "token_weights", promised=_SAME), data)


def _remade(at: Border, data: Sequence[Datum]) -> list[Datum]:
    with at:
        remade = list(getattr(at.part, at.method)(data))
    same = [
        isinstance(d, Datum) and d.tokens.shape == old.tokens.shape
        for d, old in zip(remade, data, strict=False)
    ]
    is_same = all(same) and len(remade) == len(data)
    at.check("" if is_same else f"{len(remade)} others for {len(data)} data")
    return remade


def remembered(
    advantage: Advantage,
    loss: Loss,
    memory: Mapping[str, Mapping[str, Any]],
    metrics: Mapping[str, float],
) -> dict[str, Mapping[str, Any]]:
    """New memory of advantage and loss after the metrics of a step, without empty ones."""
    parts = {"advantage": advantage, "loss": loss}
    new = {kind: adapted_by(part, memory.get(kind, {}), metrics) for kind, part in parts.items()}
    return {kind: kept for kind, kept in new.items() if kept}


async def update(
    backend: Backend, parts: Sequence[Sequence[Datum]], loss: Loss
) -> list[dict[str, float]]:
    """Make one optimiser update with each part of the data, checked before; gives their metrics."""
    parts = [token_weights(loss, part) for part in parts]
    for part in parts:
        check_data(part)
    updated: list[dict[str, float]] = []
    for part in parts:
        with Border(backend, "backend", "update", promised="metrics of one update"):
            found = await backend.update(part, loss)
        numbers = numbers_of(backend, "backend", "update", found)
        updated.append(per_token(numbers, sum(float(d.weights.sum()) for d in part)))
    return updated
