"""The line: one run, top to bottom.

Problem -> Group -> ScoredGroup -> advantages (P, G) -> Datum -> metrics -> Checkpoint.
A piece of data meets each part once. Ctrl-C cancels this coroutine wherever it waits; the state
is always that of the last finished step.
"""

from __future__ import annotations

import time

import attrs

from rlvr.run import batches, metrics, stages
from rlvr.run.choice import problems_of_step
from rlvr.run.evaluate import evaluate
from rlvr.run.recipe import Recipe
from rlvr.run.state import RunState
from rlvr.run.watch import Watch


async def train(recipe: Recipe, state: RunState, watch: Watch) -> RunState:
    """
    Train until `recipe.steps`, announcing everything to `watch`; gives back the last state.

    Raises:
        VerifierError: Too many verifications of a step could not run.
        BackendError: Sampler and trainer disagree, data are unfit, or an update failed.
    """
    student, board, options = recipe.student, watch.board, recipe.train
    backend, scorer = student.backend, student.judge.scorer
    smallest_group = 2 if student.sampler.draws_from_policy else 1

    await _evaluate_if_due(recipe, state, watch)
    while state.step < recipe.steps:
        begun, step = time.monotonic(), state.step + 1
        board.step, board.steps = step, recipe.steps

        problems = problems_of_step(
            student.judge.task, recipe.problems, options.problems, seed=recipe.seed, state=state
        )
        params = attrs.evolve(student.params, seed=batches.seed_of(recipe.seed, "sample", step))
        with board.during("sample"):
            policy = await backend.policy()
            groups = await student.sampler.sample(policy, student.judge.task, problems, params)
        with board.during("parity"):
            gap = 0.0
            if recipe.parity.probe and student.sampler.draws_from_policy:
                gap = await stages.check_parity(
                    backend, groups, probe=recipe.parity.probe, threshold=recipe.parity.threshold
                )
        with board.during("verify"):
            scored = await scorer.at(state.step, state.history).groups(groups)
        watch.groups_scored(step, scored)

        admitted = stages.admit(scored, smallest=smallest_group)
        data = stages.collate(admitted, recipe.advantage(admitted))
        with board.during("train"):
            data = await stages.annotate(backend, data, recipe.loss.needs)
            parts = batches.updates(
                data,
                passes=options.passes,
                minibatches=options.minibatches,
                aggregation=options.aggregation,
                max_tokens=params.max_tokens,
                seed=batches.seed_of(recipe.seed, "updates", step),
            )
            updated = await watch.unbroken(stages.update(backend, parts, recipe.loss))

        state = state.advanced(time.monotonic() - begun, scored)
        numbers = {
            **metrics.of_groups(scored),
            **metrics.mean_over_updates(updated),
            "parity/max": gap,
        }
        watch.step_finished(state, numbers)
        watch.stop_if_asked()
        if _is_due(state.step, recipe.checkpoint.every, recipe.steps):
            with board.during("checkpoint"):
                await watch.checkpoint(recipe, state)
        await _evaluate_if_due(recipe, state, watch)
    return state


async def _evaluate_if_due(recipe: Recipe, state: RunState, watch: Watch) -> None:
    is_due = state.step == 0 or _is_due(state.step, recipe.eval.every, recipe.steps)
    if not (recipe.eval_problems and is_due) or state.step in watch.reports:
        return
    student = recipe.student
    with watch.board.during("evaluate"):
        report, scored = await evaluate(
            await student.backend.policy(),
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
    watch.evaluated(state.step, report, scored)


def _is_due(step: int, every: int, last: int) -> bool:
    return step == last or (every > 0 and step % every == 0)
