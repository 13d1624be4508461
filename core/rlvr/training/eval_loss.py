"""Evaluation by the loss on recorded, held-out trajectories."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import attrs

from rlvr.border.abilities import numbers_of
from rlvr.border.calls import Border
from rlvr.border.kinds import remembering
from rlvr.border.promises import credited, policy_of
from rlvr.checks import check_data
from rlvr.errors import ConfigError
from rlvr.evaluation.pass_at_k import report_of
from rlvr.parts import Advantage, Loss
from rlvr.records.run_state import RunState
from rlvr.rollouts.group import sample_groups
from rlvr.seeds import seed_of
from rlvr.training import stages
from rlvr.training.metrics import mean_over_updates, per_token
from rlvr.training.minibatches import weigh
from rlvr.types import Datum, EvalReport, ScoredGroup

if TYPE_CHECKING:
    from rlvr.assembly.recipe import Recipe


async def held_out_loss(recipe: Recipe, state: RunState) -> tuple[EvalReport, list[ScoredGroup]]:
    """
    Replay the evaluation's problems, once each, and measure the run's loss on them.

    They pass the same stages as a step's data, in parts of the same size: collated, seen by the
    teachers, annotated, refined and weighed as one update. The results are means over these
    updates, each counted as `train.aggregation` says: by its tokens, or by its trajectories. The
    loss's memory is left out: with weights that move, evaluations of different
    steps could not be compared.

    Raises:
        ConfigError: None of them has a token to learn from.
        BackendError: A teacher's answer means nothing, or the loss is not finite.
    """
    begun = time.monotonic()
    problems = recipe.eval_problems
    params = attrs.evolve(recipe.params, group_size=1, seed=seed_of(recipe.seed, "evaluate"))
    groups = await sample_groups(
        recipe.sampler, await policy_of(recipe.backend), recipe.task, problems, params
    )
    scored = await recipe.runner.groups(groups)
    advantage = remembering(recipe.advantage, state.memory.get("advantage", {}))
    loss = recipe.loss
    kept = stages.admit(scored, smallest=1)
    data = stages.collate(kept, credited(advantage, kept), recipe.task)
    if not data:
        raise ConfigError(
            f"held-out trajectories were to be evaluated: {len(problems)} of them.",
            "found: none has a token that is learnt from",
            "set eval.samples=0, or hold others out (eval.split, eval.problems)",
        )
    backend = recipe.backend
    found: list[dict[str, float]] = []
    shares: list[float] = []  # and not the data: their distributions are large
    for first in range(0, len(data), recipe.train.problems):
        part = data[first : first + recipe.train.problems]
        part = await _prepared(recipe, advantage, loss, part)
        with Border(backend, "backend", "eval_loss", promised="metrics, the loss among them"):
            told: object = await backend.eval_loss(part, loss)
        told = numbers_of(backend, "backend", "eval_loss", told)
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
    needs = advantage.needs | loss.needs
    if recipe.teachers:
        data = await stages.ask_teachers(recipe.teachers, needs, data)
    data = await stages.annotate(recipe.backend, data, needs)
    data = stages.token_advantages(advantage, data)
    longest = recipe.params.max_tokens
    data = stages.token_weights(loss, weigh(data, recipe.train.aggregation, longest))
    check_data(data)
    return data


def _share(data: list[Datum], aggregation: str) -> float:
    """Weight of an update of these data in the mean: its tokens, or its trajectories."""
    if aggregation == "token":
        return float(sum(int(datum.mask.sum()) for datum in data))
    return float(len(data))
