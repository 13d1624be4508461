"""The training loop: one run, top to bottom.

Problem -> Group -> ScoredGroup -> advantages (P, G) -> Datum -> metrics -> Checkpoint.
Each datum passes each part once. Sampling and verification are `rollout_worker.sampling`, which
runs beside this as far as `run.max_staleness` allows. Ctrl-C cancels this coroutine wherever it
waits; the state is always that of the last finished step.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import attrs

from rlvr.assembly.recipe import Recipe
from rlvr.border.abilities import metrics_of
from rlvr.border.kinds import remembering
from rlvr.border.promises import check_any_credit, credited, policy_of
from rlvr.evaluation.pass_at_k import evaluate
from rlvr.parts import Advantage, Teacher
from rlvr.records.run_state import RunState
from rlvr.seeds import seed_of
from rlvr.training import metrics, minibatches, stages
from rlvr.training.callbacks import Callbacks
from rlvr.training.eval_loss import held_out_loss
from rlvr.training.rollout_worker import Batch, next_batch, sampling
from rlvr.training.second_opinions import Opinions
from rlvr.types import Datum, EvalReport, ScoredGroup


async def train(recipe: Recipe, state: RunState, callbacks: Callbacks) -> RunState:
    """
    Train until `recipe.steps`, announcing everything to `callbacks`; gives back the last state.

    Raises:
        VerifierError: Too many verifications of a step could not run.
        BackendError: Sampler and trainer disagree, data are unfit, or an update failed.
    """
    backend, status = recipe.backend, callbacks.status
    begun_at, withheld = state.step, 0
    await _evaluate_if_due(recipe, state, callbacks)
    opinions = Opinions.of(recipe, callbacks.directory, status)
    async with sampling(recipe, state, status) as stream, opinions:
        opinions.resume(stream.growth.known)
        while state.step < recipe.steps:
            begun, step = time.monotonic(), state.step + 1
            status.step = step
            advantage = remembering(recipe.advantage, state.memory.get("advantage", {}))
            loss = remembering(recipe.loss, state.memory.get("loss", {}))
            needs = advantage.needs | loss.needs

            batch = await next_batch(recipe, stream, state)
            callbacks.groups_scored(step, batch.met, are_recorded=recipe.replays)
            opinions.ask(step, batch.met)

            credit = credited(advantage, batch.kept)
            withheld += bool(credit) and all(c is None for row in credit for c in row)
            data = stages.collate(batch.kept, credit, recipe.task)
            if recipe.teachers:
                with status.during("teach"):
                    data = await stages.ask_teachers(recipe.teachers, needs, data)
            async with stream.queue.changing_weights():
                with status.during("train"):
                    data = await stages.annotate(backend, data, needs)
                    data = stages.token_advantages(advantage, data)
                    parts = _minibatches(recipe, data, step)
                    updated = await callbacks.unbroken(stages.update(backend, parts, loss))

            numbers = _metrics(recipe, batch, data, advantage, updated) | opinions.numbers()
            memory = stages.remembered(advantage, loss, state.memory, numbers) | stream.memory()
            state = state.advanced(
                time.monotonic() - begun, batch.met, stream.queue.snapshot(), memory
            )
            state = stream.growth.settled(state)
            callbacks.step_finished(state, numbers, has_teachers=bool(recipe.teachers))
            callbacks.notice([advantage, loss], numbers)
            callbacks.stop_if_asked()
            if _is_due(state.step, recipe.checkpoint.every, recipe.steps):
                with status.during("checkpoint"):
                    await callbacks.checkpoint(recipe, state)
                callbacks.stop_if_asked()
            await _evaluate_if_due(recipe, state, callbacks)
        await opinions.drain()
    if withheld and withheld == state.step - begun_at:
        check_any_credit(recipe.advantage, withheld)
    return state


def _minibatches(recipe: Recipe, data: Sequence[Datum], step: int) -> list[list[Datum]]:
    """The data of a step, weighted, one list an update."""
    options = recipe.train
    return minibatches.updates(
        data,
        passes=options.passes,
        minibatches=options.minibatches,
        aggregation=options.aggregation,
        max_tokens=recipe.params.max_tokens,
        seed=seed_of(recipe.seed, "updates", step),
    )


def _metrics(
    recipe: Recipe,
    batch: Batch,
    data: Sequence[Datum],
    advantage: Advantage,
    updated: Sequence[Mapping[str, float]],
) -> dict[str, float]:
    """The metrics of a step; where two have one name, the later wins."""
    parts: tuple[Advantage | Teacher, ...] = (*recipe.teachers.values(), advantage) if data else ()
    return {
        **metrics.of_groups(batch.met),
        "sampler/drawn": float(recipe.sampler.draws_from_policy),
        **batch.mismatch,
        **metrics.of_data(data),
        **{name: value for part in parts for name, value in metrics_of(part, data).items()},
        **metrics.mean_over_updates(updated),
        **batch.numbers,
    }


async def _evaluate_if_due(recipe: Recipe, state: RunState, callbacks: Callbacks) -> None:
    is_due = state.step == 0 or _is_due(state.step, recipe.eval.every, recipe.steps)
    if not (recipe.eval_problems and is_due) or state.step in callbacks.reports:
        return
    with callbacks.status.during("evaluate"):
        if recipe.task.is_offline:
            report, scored = await held_out_loss(recipe, state)
        else:
            report, scored = await _sampled_and_judged(recipe)
    callbacks.evaluated(state.step, report, scored)
    with callbacks.status.during("checkpoint"):
        await callbacks.keep_best(recipe, state)
    callbacks.stop_if_asked()


async def _sampled_and_judged(recipe: Recipe) -> tuple[EvalReport, list[ScoredGroup]]:
    return await evaluate(
        await policy_of(recipe.backend),
        recipe.task,
        recipe.eval_sampler,
        recipe.runner,
        recipe.eval_problems,
        attrs.evolve(
            recipe.params,
            group_size=recipe.eval.samples,
            seed=seed_of(recipe.seed, "evaluate"),
        ),
        split=recipe.eval.split,
    )


def _is_due(step: int, every: int, last: int) -> bool:
    return step == last or (every > 0 and step % every == 0)
