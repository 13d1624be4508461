"""The line: one run, top to bottom.

Problem -> Group -> ScoredGroup -> advantages (P, G) -> Datum -> metrics -> Checkpoint.
A piece of data meets each part once. Sampling and verification are `pipeline.sampling`, which runs
beside this as far as `run.max_staleness` allows. Ctrl-C cancels this coroutine wherever it waits;
the state is always that of the last finished step.
"""

from __future__ import annotations

import time

import attrs

from rlvr.run import batches, metrics, stages
from rlvr.run.appraisal import appraise_held_out, is_recorded
from rlvr.run.evaluate import evaluate
from rlvr.run.opinions import Opinions
from rlvr.run.pipeline import next_batch, sampling
from rlvr.run.promises import check_any_credit, credited, policy_of
from rlvr.run.recipe import Recipe
from rlvr.run.state import RunState
from rlvr.run.watch import Watch
from rlvr.types import EvalReport, ScoredGroup


async def train(recipe: Recipe, state: RunState, watch: Watch) -> RunState:
    """
    Train until `recipe.steps`, announcing everything to `watch`; gives back the last state.

    Raises:
        VerifierError: Too many verifications of a step could not run.
        BackendError: Sampler and trainer disagree, data are unfit, or an update failed.
    """
    backend, board, options = recipe.student.backend, watch.board, recipe.train

    begun_at, withheld = state.step, 0

    await _evaluate_if_due(recipe, state, watch)
    opinions = Opinions.of(recipe, watch.directory, board)
    async with sampling(recipe, state, board) as stream, opinions:
        opinions.resume(stream.growth.known)
        while state.step < recipe.steps:
            begun, step = time.monotonic(), state.step + 1
            board.step, board.steps = step, recipe.steps
            advantage = stages.recalled(recipe.advantage, state.memory.get("advantage", {}))
            loss = stages.recalled(recipe.loss, state.memory.get("loss", {}))

            batch = await next_batch(recipe, stream, state)
            watch.groups_scored(step, batch.met, are_recorded=recipe.replays)
            opinions.ask(step, batch.met)

            credit = credited(advantage, batch.kept)
            withheld += bool(credit) and all(c is None for row in credit for c in row)
            data = stages.collate(batch.kept, credit, recipe.student.judge.task)
            if recipe.teachers:
                with board.during("teach"):
                    data = await stages.consult(recipe.teachers, [advantage, loss], data)
            async with stream.ledger.changing_weights():
                with board.during("train"):
                    data = await stages.refine(backend, advantage, data)
                    data = await stages.annotate(backend, data, loss.needs)
                    parts = batches.updates(
                        data,
                        passes=options.passes,
                        minibatches=options.minibatches,
                        aggregation=options.aggregation,
                        max_tokens=recipe.student.params.max_tokens,
                        seed=batches.seed_of(recipe.seed, "updates", step),
                    )
                    updated = await watch.unbroken(stages.update(backend, parts, loss))

            numbers = {
                **metrics.of_groups(batch.met),
                **batch.mismatch,
                **metrics.of_data(data),
                **stages.told(advantage, data),
                **metrics.mean_over_updates(updated),
                **batch.numbers,
                **opinions.numbers(),
            }
            memory = stages.adapted({"advantage": advantage, "loss": loss}, state.memory, numbers)
            memory |= stream.memory()
            state = state.advanced(
                time.monotonic() - begun, batch.met, stream.ledger.snapshot(), memory
            )
            state = stream.growth.settled(state)
            watch.step_finished(state, numbers)
            watch.notice([advantage, loss], numbers)
            watch.stop_if_asked()
            if _is_due(state.step, recipe.checkpoint.every, recipe.steps):
                with board.during("checkpoint"):
                    await watch.checkpoint(recipe, state)
                watch.stop_if_asked()
            await _evaluate_if_due(recipe, state, watch)
        await opinions.drain()
    if withheld and withheld == state.step - begun_at:
        check_any_credit(recipe.advantage, withheld)
    return state


async def _evaluate_if_due(recipe: Recipe, state: RunState, watch: Watch) -> None:
    is_due = state.step == 0 or _is_due(state.step, recipe.eval.every, recipe.steps)
    if not (recipe.eval_problems and is_due) or state.step in watch.reports:
        return
    with watch.board.during("evaluate"):
        if is_recorded(recipe.student.judge.task):
            report, scored = await appraise_held_out(recipe, state)
        else:
            report, scored = await _sampled_and_judged(recipe)
    watch.evaluated(state.step, report, scored)
    with watch.board.during("checkpoint"):
        await watch.keep_best(recipe, state)
    watch.stop_if_asked()


async def _sampled_and_judged(recipe: Recipe) -> tuple[EvalReport, list[ScoredGroup]]:
    student = recipe.student
    return await evaluate(
        await policy_of(student.backend),
        student.judge.task,
        recipe.eval_sampler,
        student.judge.scorer,
        recipe.eval_problems,
        attrs.evolve(
            student.params,
            group_size=recipe.eval.samples,
            seed=batches.seed_of(recipe.seed, "evaluate"),
        ),
        split=recipe.eval.split,
    )


def _is_due(step: int, every: int, last: int) -> bool:
    return step == last or (every > 0 and step % every == 0)
