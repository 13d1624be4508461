"""The small stages between the parts: admit, collate, consult, annotate, refine, update."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import numpy as np

from rlvr.abilities import Adaptive, Annotating, Telling, TokenCredit
from rlvr.border import Border
from rlvr.checks import check_data
from rlvr.distributions import Answering, Ask, Distilling, Weighing
from rlvr.parts import Advantage, Backend, Loss, Teacher
from rlvr.run.asking import answered, with_actual
from rlvr.run.metrics import per_token
from rlvr.run.promises import check_scored, numbers_of
from rlvr.types import Datum, FloatArray, Message, ScoredGroup, Trajectory

P = TypeVar("P")


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
    What training may see: trajectories with a reward, in groups of at least `smallest`.

    Unscorable and failed trajectories leave their group here, so they touch no baseline.
    """
    kept = (group.scored_only() for group in groups)
    return [group for group in kept if len(group.trajectories) >= smallest]


def collate(
    groups: Sequence[ScoredGroup],
    advantages_P_G: Sequence[Sequence[float | None]],
    task: object = None,
) -> list[Datum]:
    """
    Groups and their advantages (P, G) as data, without those of None or no policy tokens.

    A task that knows more of each token (`Annotating`) adds it.
    """

    def known(group: ScoredGroup, trajectory: Trajectory) -> Mapping[str, Any]:
        if not isinstance(task, Annotating):
            return {}
        return task.annotations(group.problem, trajectory)

    return [
        datum_of(
            trajectory,
            advantage,
            group.problem.labels,
            known(group, trajectory),
            group.problem.prompt,
        )
        for group, advantages in zip(groups, advantages_P_G, strict=True)
        for trajectory, advantage in zip(group.trajectories, advantages, strict=True)
        if advantage is not None and trajectory.mask.any()
    ]


async def consult(
    teachers: Mapping[str, Teacher], parts: Sequence[Any], data: list[Datum]
) -> list[Datum]:
    """
    Add what each teacher that a part needs says of the policy's tokens, by its annotation.

    Numbers (T,) for what a part `needs`, distributions for what a loss that is `Distilling` asks;
    both from one answer where that holds both (`asking.with_actual`).

    Raises:
        BackendError: A teacher gave something else than one finite number a token, or a
            distribution that is none.
    """
    needs = {name for part in parts for name in getattr(part, "needs", ())}
    asks: dict[str, Ask] = {}
    for part in parts:
        asks |= part.distributions if isinstance(part, Distilling) else {}
    for name in dict.fromkeys([*asks, *teachers]) if data else ():
        teacher, ask = teachers[name], asks.get(name)
        if name in needs and isinstance(teacher, Answering):
            data = await answered(teacher, data, name, None)
        if ask is not None:
            data = await answered(teacher, data, name, ask)
        if name in needs and not isinstance(teacher, Answering):
            known = with_actual(data, name, ask) if ask is not None else None
            data = known or await answered(teacher, data, name, None)
    return data


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
        at = Border(backend, "backend", "logprobs", promised=f"{which} numbers for each datum")
        with at:
            found = await backend.logprobs(data, which)
        check_scored(backend, data, which, found)
        data = _with_annotation(data, which, found)
    return data


async def refine(backend: Backend, advantage: Advantage, data: list[Datum]) -> list[Datum]:
    """
    The last word of an advantage that has one token by token (`TokenCredit`).

    Comes before the loss's annotations, because it may make some of them ("return").
    """
    if not isinstance(advantage, TokenCredit):
        return data
    data = await annotate(backend, data, advantage.needs)
    at = Border(advantage, "advantage", "refine", promised=f"{len(data)} data, order kept")
    with at:
        refined = list(advantage.refine(data))
    same = [
        isinstance(d, Datum) and d.tokens.shape == old.tokens.shape
        for d, old in zip(refined, data, strict=False)
    ]
    at.check("" if all(same) and len(refined) == len(data) else f"{len(refined)} others")
    return refined


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


def weighed(loss: Loss, data: Sequence[Datum]) -> Sequence[Datum]:
    """The data of one update with what each token counts, where the loss has a say (`Weighing`)."""
    return loss.weighed(data) if isinstance(loss, Weighing) else data


async def update(
    backend: Backend, parts: Sequence[Sequence[Datum]], loss: Loss
) -> list[dict[str, float]]:
    """One optimiser update a part, each checked before it is sent; the metrics of each."""
    parts = [weighed(loss, part) for part in parts]
    for part in parts:
        check_data(part)
    updated: list[dict[str, float]] = []
    for part in parts:
        with Border(backend, "backend", "step", promised="metrics of one update"):
            found = await backend.step(part, loss)
        numbers = numbers_of(backend, "backend", "step", found)
        updated.append(per_token(numbers, sum(float(d.weights.sum()) for d in part)))
    return updated
