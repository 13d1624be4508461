"""Problems that a task finds during training (`Task.discover`), by self-play or exploration."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs
from attrs import define, field

from rlvr.border.abilities import discovered_by, memory_of
from rlvr.border.calls import Border
from rlvr.parts import Policy, Task
from rlvr.records.lineage import after_training
from rlvr.records.run_state import RunState
from rlvr.seeds import seed_of
from rlvr.types import Problem


@define
class Growth:
    """
    The fixed problems of a run and those that its task has found since.

    Attributes:
        fixed: Problems that were there at the start.
        memory: What the task keeps of its search (JSON values); part of each checkpoint. Nobody
            changes it: a task is given a copy, and what it gives back is copied.
        found: Problems that the memory holds.
    """

    fixed: Sequence[Problem]
    memory: Mapping[str, Any] = field(factory=dict)
    found: Sequence[Problem] = ()
    _fixed_by_id: dict[str, Problem] = field(init=False)
    _waiting: dict[str, Problem] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._fixed_by_id = {problem.id: problem for problem in self.fixed}

    @classmethod
    def resumed(cls, task: Task, fixed: Sequence[Problem], memory: Mapping[str, Any]) -> Growth:
        """State at the time `memory` was kept; {} is the start of a run."""
        growth = cls(fixed=fixed)
        if task.discovers_problems and memory:
            growth.memory, growth.found = memory, discovered_by(task, memory)
        return growth

    @property
    def known(self) -> Mapping[str, Problem]:
        """All problems by id; also those that left the memory and still wait to be handed out."""
        now = {problem.id: problem for problem in self.found}
        return ChainMap(now, self._waiting, self._fixed_by_id)

    async def grow(
        self, task: Task, policy: Policy, *, seed: int, step: int, waiting: Collection[str] = ()
    ) -> None:
        """
        Let the task look for problems before those of a step are chosen.

        `waiting` are ids of problems that were chosen and are to be handed out yet: they stay
        known.

        Raises:
            PartError: It keeps what is no JSON, or found a problem whose id is taken.
        """
        memory = await memory_of(
            task, policy, self.memory, seed=seed_of(seed, "grow", step), step=step
        )
        found = discovered_by(task, memory)
        ids = Counter(problem.id for problem in found)
        taken = [name for name, count in ids.items() if count > 1 or name in self._fixed_by_id]
        at = Border(task, "task", "discovered", promised="problems with ids of their own")
        at.check(f"one with the id {taken[0]!r}, which is taken" if taken else "")
        known = self.known
        self._waiting = {name: known[name] for name in waiting if name in known}
        self.memory, self.found = memory, found

    def settled(self, state: RunState) -> RunState:
        """
        The state of a finished step, with what follows from the problems that were found.

        The weights are trained on those as well. Pass rates of problems that nobody will meet
        again are forgotten: they are neither fixed nor in the memory, nor do they wait.
        """
        kept = {problem.id for problem in self.found} | set(state.problem_stream.waiting)
        gone = {n for n in state.history if n not in kept and n not in self._fixed_by_id}
        history = state.history.without(gone)
        lineage = after_training(state.lineage, self.found)
        return attrs.evolve(state, history=history, lineage=lineage)
