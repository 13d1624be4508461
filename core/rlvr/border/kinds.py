"""The base class of each kind of part; checked when a part is built, opened or passed in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from rlvr.border.calls import Border, shown
from rlvr.parts import (
    Advantage,
    Backend,
    Callback,
    Checkpointer,
    Curriculum,
    Episode,
    LearningPart,
    Loss,
    Needs,
    Part,
    Policy,
    RewardFn,
    Sampler,
    Task,
    Teacher,
)

_KINDS = (
    *(Task, RewardFn, Sampler, Advantage, Loss, Backend, Policy, Teacher),
    *(Checkpointer, Curriculum, Callback, Episode),
)
BASES: Mapping[str, type[Part]] = {base.kind: base for base in _KINDS}
"""The base class from which every part of a kind derives."""


def fault_of_part(part: object, kind: str) -> str:
    """The fault of an object that should be a part of a kind; "" if it is one."""
    base = BASES.get(kind, Part)
    if kind in BASES and not isinstance(part, base):
        return f"{shown(part)}, which does not derive from rlvr.{base.__name__}"
    needs: Any = cast(Any, part).needs if issubclass(base, LearningPart) else Needs()
    if not isinstance(needs, Needs):
        return f"{type(part).__name__}.needs = {shown(needs)}, which is no rlvr.Needs"
    return ""


P = TypeVar("P", bound=LearningPart)


def remembering(part: P, memory: Mapping[str, float]) -> P:
    """An advantage or a loss with the settings that its memory holds, else `PartError`."""
    at = Border(part, part.kind, "with_memory", promised="the same part with other settings")
    found = at.call(part.with_memory, memory)
    at.check(fault_of_part(found, part.kind))
    return found


def curriculum_of(task: Task) -> Curriculum | None:
    """The task's own choice of the problems of each step; None: it has none."""
    at = Border(task, "task", "curriculum", promised="a Curriculum or None")
    found = at.call(task.curriculum)
    at.check(fault_of_part(found, "curriculum") if found is not None else "")
    return found
