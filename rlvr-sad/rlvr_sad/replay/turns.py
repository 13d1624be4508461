"""The turns of a trajectory: runs of segments between the marks of a template."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve, frozen

from rlvr_sad.trajectory import TRAINED, AgentTrajectory, Segment

_TEMPLATE = "template"
_ROLES = {"system": "system", "user": "user", "tool": "tool", "assistant": "assistant"}


@frozen(kw_only=True)
class Turn:
    """One message: who says it, and the segments of its text; what an environment put in too."""

    role: str
    segments: tuple[Segment, ...]

    @property
    def is_models(self) -> bool:
        """Whether the model wrote any of it."""
        return self.role == "assistant"

    @property
    def text(self) -> str:
        """Its text."""
        return "".join(segment.text for segment in self.segments)


def turns_of(trajectory: AgentTrajectory) -> list[Turn]:
    """The messages in order; turns of the model that follow each other are one, by newlines."""
    found: list[Turn] = []
    run: list[Segment] = []
    for segment in trajectory.segments:
        if segment.role == _TEMPLATE:
            _close(found, run)
            run = []
        else:
            run.append(segment)
    _close(found, run)
    return found


def has_messages(trajectory: AgentTrajectory) -> bool:
    """Whether it was recorded as messages, with a prompt before the model's first turn."""
    if not any(segment.role == _TEMPLATE for segment in trajectory.segments):
        return False
    first = next(iter(turns_of(trajectory)), None)
    return first is not None and not first.is_models


def part_of(trajectory: AgentTrajectory, segments: Sequence[Segment]) -> AgentTrajectory:
    """A trajectory of some segments alone, their offsets from its beginning."""
    moved, at = [], 0
    for segment in segments:
        size = segment.end - segment.start
        moved.append(evolve(segment, start=at, end=at + size))
        at += size
    return evolve(trajectory, segments=tuple(moved))


def _close(found: list[Turn], run: list[Segment]) -> None:
    if not run or not "".join(segment.text for segment in run).strip():
        return
    is_models = any(segment.type in TRAINED for segment in run)
    role = "assistant" if is_models else _ROLES.get(run[0].role, "user")
    if role == "assistant" and found and found[-1].is_models:
        last = found[-1].segments[-1]
        gap = evolve(last, text="\n", start=last.end, end=last.end + 1, media=None)
        found[-1] = Turn(role=role, segments=(*found[-1].segments, gap, *run))
    else:
        found.append(Turn(role=role, segments=tuple(run)))
