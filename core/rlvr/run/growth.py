"""Problems that a task finds while the run goes on (`Growing`): self-play, exploration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field

from rlvr.abilities import Growing
from rlvr.errors import TaskError, explain
from rlvr.parts import Policy, Task
from rlvr.run.batches import seed_of
from rlvr.types import Problem


@define
class Growth:
    """
    The fixed problems of a run and those that its task has found since.

    Attributes:
        fixed: Problems that were there at the start.
        memory: What the task keeps of its search (JSON values); part of each checkpoint.
        found: Problems that the memory holds.
    """

    fixed: Sequence[Problem]
    memory: Mapping[str, Any] = field(factory=dict)
    found: Sequence[Problem] = ()
    _earlier: dict[str, Problem] = field(factory=dict)

    @classmethod
    def resumed(cls, task: Task, fixed: Sequence[Problem], memory: Mapping[str, Any]) -> Growth:
        """As it stood when `memory` was kept; {} at the start of a run."""
        growth = cls(fixed=fixed)
        if isinstance(task, Growing) and memory:
            growth.memory, growth.found = memory, tuple(task.grown(memory))
        return growth

    @property
    def known(self) -> Mapping[str, Problem]:
        """All by id; also those found earlier, which may have been handed out since."""
        now = {problem.id: problem for problem in (*self.fixed, *self.found)}
        return {**self._earlier, **now}

    async def grow(self, task: Growing, policy: Policy, *, seed: int, step: int) -> None:
        """
        Let the task look for problems before those of a step are chosen.

        Raises:
            TaskError: It found one with the id of a fixed problem.
        """
        memory = await task.grow(policy, self.memory, seed=seed_of(seed, "grow", step), step=step)
        found = tuple(task.grown(memory))
        taken = {problem.id for problem in self.fixed} & {problem.id for problem in found}
        if taken:
            raise TaskError(
                explain(
                    f"{type(task).__name__}.grow was to find further problems.",
                    f"found: one with the id {min(taken)}, which is taken",
                    "give problems that are found ids of their own",
                )
            )
        self._earlier |= {problem.id: problem for problem in self.found}
        self.memory, self.found = memory, found
