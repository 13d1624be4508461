"""Evaluation on trajectories that exist already: what does the loss come to on held-out ones?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import attrs

from rlvr.abilities import Appraising, Recorded
from rlvr.checks import check_data
from rlvr.errors import ConfigError, explain
from rlvr.parts import Advantage, Backend, Loss, Task
from rlvr.run import stages
from rlvr.run.batches import seed_of, weigh
from rlvr.run.evaluate import report_of
from rlvr.run.metrics import mean_over_updates, per_token
from rlvr.run.promises import credited, policy_of, sampled
from rlvr.run.state import RunState
from rlvr.types import Datum, EvalReport, ScoredGroup

if TYPE_CHECKING:
    from rlvr.run.recipe import Recipe


def is_recorded(task: Task) -> bool:
    """Whether the task's trajectories exist already."""
    return isinstance(task, Recorded) and bool(task.is_recorded)


def check_can_appraise(task: Task, backend: Backend, name: str) -> None:
    """
    Refuse, before training, an evaluation that the backend cannot make.

    Raises:
        ConfigError: The task is recorded, and the backend trains only.
    """
    if is_recorded(task) and not isinstance(backend, Appraising):
        raise ConfigError(
            explain(
                "held-out trajectories were to be evaluated (eval.samples).",
                f"found: backend {name} cannot tell a loss without training on it",
                "set eval.samples=0, or choose another backend: --backend torch",
            )
        )


def check_is_judged(task: Task, name: str) -> None:
    """
    Refuse to sample and judge, as `rlvr eval` does, where there is nothing to judge.

    Raises:
        ConfigError: The task is recorded.
    """
    if is_recorded(task):
        raise ConfigError(
            explain(
                f"answers to the problems of task {name} were to be sampled and judged.",
                "found: its trajectories are recorded; a model is measured by its loss on those "
                "that are held out, which is known with an algorithm and its teacher only",
                f"do: rlvr run --plugin {name} --algo ALGO --model MODEL --teacher TEACHER "
                "--steps 0 eval.samples=1",
            )
        )


async def appraise_held_out(
    recipe: Recipe, state: RunState
) -> tuple[EvalReport, list[ScoredGroup]]:
    """
    Replay the evaluation's problems, once each, and appraise the run's loss on them.

    They go the way of a step's data, as many at a time: collated, seen by the teachers, refined,
    annotated and weighed as one update. The numbers are the means over these updates, each counted
    as `train.aggregation` counts: by its tokens, or by its trajectories. What the loss has learnt
    of the run (`Adaptive`) is left out: weights that move would make evaluations of different
    steps different measures, and the best of them the one that was weighted most kindly.

    Raises:
        ConfigError: None of them has a token to learn from.
        BackendError: A teacher's answer means nothing, or the loss is not finite.
    """
    begun = time.monotonic()
    student, problems = recipe.student, recipe.eval_problems
    params = attrs.evolve(student.params, group_size=1, seed=seed_of(recipe.seed, "evaluate"))
    groups = await sampled(
        student.sampler, await policy_of(student.backend), student.judge.task, problems, params
    )
    scored = await student.judge.scorer.groups(groups)
    advantage = stages.recalled(recipe.advantage, state.memory.get("advantage", {}))
    loss = recipe.loss
    kept = stages.admit(scored, smallest=1)
    data = stages.collate(kept, credited(advantage, kept), student.judge.task)
    if not data:
        raise ConfigError(
            explain(
                f"held-out trajectories were to be evaluated: {len(problems)} of them.",
                "found: none has a token that is learnt from",
                "set eval.samples=0, or hold others out (eval.split, eval.problems)",
            )
        )
    backend: Any = student.backend
    found: list[dict[str, float]] = []
    shares: list[float] = []  # and not the data: their distributions are large
    for first in range(0, len(data), recipe.train.problems):
        part = data[first : first + recipe.train.problems]
        part = await _prepared(recipe, advantage, loss, part)
        told = await backend.appraise(part, loss)
        found.append(per_token(told, sum(float(d.weights.sum()) for d in part)))
        shares.append(_share(part, recipe.train.aggregation))
    measures = mean_over_updates(found, shares)
    report = report_of(scored, split=recipe.eval.split, seconds=time.monotonic() - begun)
    report = attrs.evolve(
        report,
        scores=dict.fromkeys(report.scores, ()),
        pass_at={},
        low=0.0,
        high=0.0,
        measures={f"eval/{name}": measures[name] for name in sorted(measures)},
    )
    return report, scored


async def _prepared(
    recipe: Recipe, advantage: Advantage, loss: Loss, data: list[Datum]
) -> list[Datum]:
    if recipe.teachers:
        data = await stages.consult(recipe.teachers, [advantage, loss], data)
    data = await stages.refine(recipe.student.backend, advantage, data)
    data = await stages.annotate(recipe.student.backend, data, loss.needs)
    longest = recipe.student.params.max_tokens
    data = list(stages.weighed(loss, weigh(data, recipe.train.aggregation, longest)))
    check_data(data)
    return data


def _share(data: list[Datum], aggregation: str) -> float:
    """What an update of these data counts among others."""
    if aggregation == "token":
        return float(sum(int(datum.mask.sum()) for datum in data))
    return float(len(data))
