"""Which problems a step takes: the task's choice where it makes one, else epochs of all."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr.curriculum import epochs
from rlvr.errors import TaskError, explain
from rlvr.parts import Chooser, Task
from rlvr.run.state import RunState
from rlvr.types import Problem


def problems_of_step(
    task: Task, problems: Sequence[Problem], count: int, *, seed: int, state: RunState
) -> list[Problem]:
    """
    The problems of the step after `state`: a function of (seed, step, pass rates).

    Raises:
        TaskError: The task chose another number of problems, or one that is not among them.
    """
    if not isinstance(task, Chooser):
        return epochs(problems, count, seed=seed, step=state.step)
    chosen = task.choose(problems, count, seed=seed, step=state.step, history=state.history)
    known = {problem.id: problem for problem in problems}
    strange = [problem.id for problem in chosen if problem.id not in known]
    if strange or len(chosen) != count:
        found = f"{strange[0]}, which is none of them" if strange else f"{len(chosen)} problems"
        raise TaskError(
            explain(
                f"{type(task).__name__}.choose was asked for {count} of {len(known)} problems.",
                f"found: {found}",
                "correct the task: rlvr.curriculum has ready choices",
            )
        )
    return [known[problem.id] for problem in chosen]
