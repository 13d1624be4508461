"""Choose the problems of a step: by the run's curriculum, else the task, else epochs of all."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rlvr.border.calls import Border, label, shown
from rlvr.border.kinds import curriculum_of
from rlvr.curriculum.choices import epochs
from rlvr.curriculum.pool import pool_of
from rlvr.errors import ConfigError, TaskError
from rlvr.log import get
from rlvr.parts import Curriculum, Task
from rlvr.records.run_state import RunState
from rlvr.types import Problem

log = get(__name__)


def check_choice(
    task: Task, problems: Sequence[Problem], count: int, *, seed: int, curriculum: Curriculum | None
) -> None:
    """
    Ask once before anything is sampled: does the choice fit the problems, is there only one?

    A curriculum leaves no say to a task; where that task may have been asked too, a warning says
    so.

    Raises:
        ConfigError: The task was told to choose as well, or the choice does not fit the problems.
        TaskError: As `problems_of_step`.
    """
    if curriculum is not None and curriculum_of(task) is not None:
        asked = task.curriculum_option
        if asked:
            raise ConfigError(
                "two orders of training were asked for.",
                f"found: a curriculum ({type(curriculum).__name__}) and {asked}",
                f"leave out one of them: --curriculum (run.curriculum), or {asked}",
            )
        if asked is None:
            log.warning(
                "task_choice_ignored", task=type(task).__name__, why="run.curriculum is given"
            )
    problems_of_step(task, problems, count, seed=seed, state=RunState(), curriculum=curriculum)


def problems_of_step(
    task: Task,
    problems: Sequence[Problem],
    count: int,
    *,
    seed: int,
    state: RunState,
    curriculum: Curriculum | None = None,
    handed_out: Collection[str] = (),
    trained: int | None = None,
) -> list[Problem]:
    """
    The problems of the step after `state`: a function of (seed, step, pass rates).

    `handed_out` are ids of problems that were chosen since these pass rates were known. Their
    records then say that they were met just now, so that a choice by age does not take them again
    in a refill, or while sampling runs ahead. `trained` are the steps that the pass rates know of,
    where `state.step` counts batches that were chosen, and so has run ahead: ages are then told in
    batches.

    Raises:
        ConfigError: The curriculum's options do not fit the problems.
        TaskError: Another number of problems was chosen, or one that is not among them.
    """
    owner, kind = (task, "task") if curriculum is None else (curriculum, "curriculum")
    at = Border(owner, kind, "choose", promised=f"{count} of the {len(problems)} problems")
    chooser = curriculum_of(task) if curriculum is None else curriculum
    if chooser is None:
        return epochs(problems, count, seed=seed, step=state.step)
    pool = pool_of(problems)
    history = state.history.later(0 if trained is None else state.step - trained)
    history = history.met_at(state.step, handed_out)
    with at:
        chosen = list(
            chooser.choose(pool.problems, count, seed=seed, step=state.step, history=history)
        )
    for problem in chosen:
        at.check("" if isinstance(problem, Problem) else shown(problem))
    known = pool.by_id
    strange = [problem.id for problem in chosen if problem.id not in known]
    if strange or len(chosen) != count:
        found = f"{strange[0]}, which is none of them" if strange else f"{len(chosen)} problems"
        raise TaskError(
            f"{label(owner, kind)}: "
            f"{type(chooser).__name__}.choose was asked for {count} of {len(known)} problems.",
            f"found: {found}",
            "correct it; rlvr.epochs, by_weight, by_stages and by_pass_rate are ready choices",
        )
    return [known[problem.id] for problem in chosen]
