"""Checks of what a checkpointer gives (`rlvr.border.calls`)."""

from __future__ import annotations

from pathlib import Path

from rlvr.border.calls import Border, shown
from rlvr.parts import Checkpointer
from rlvr.types import Checkpoint


def checkpoints_of(checkpointer: Checkpointer) -> list[Checkpoint]:
    """
    The checkpoints that a checkpointer keeps, oldest first.

    Raises:
        PartError: One is no checkpoint, or the checkpointer raised.
    """
    at = Border(checkpointer, "checkpointer", "list", promised="checkpoints, oldest first")
    found: list[Checkpoint] = []
    with at:
        found.extend(checkpointer.list())
    for checkpoint in found:
        at.check(_fault_of_checkpoint(checkpoint))
    steps = [checkpoint.step for checkpoint in found]
    at.check("" if steps == sorted(steps) else f"checkpoints of the steps {steps}")
    return found


def check_saved(checkpointer: object, checkpoint: object, step: int) -> None:
    """
    Reject the result of a checkpointer's `save` unless it is a checkpoint of that step.

    Raises:
        PartError: Names the checkpointer.
    """
    at = Border(checkpointer, "checkpointer", "save", promised=f"the Checkpoint of step {step}")
    at.check(_fault_of_checkpoint(checkpoint))
    if isinstance(checkpoint, Checkpoint) and checkpoint.step != step:
        at.check(f"the Checkpoint of step {checkpoint.step}")


def _fault_of_checkpoint(found: object) -> str:
    if not isinstance(found, Checkpoint):
        return shown(found)
    step: object = found.step
    if not isinstance(step, int) or step < 0:
        return f"a Checkpoint of step {shown(step)}"
    path: object = found.path
    if not isinstance(path, Path):
        return f"a Checkpoint with {shown(path)} as path"
    return "" if path.exists() else f"a Checkpoint at {path}, where nothing is"
