"""Which trajectories are held out: whole tasks, by content, so that none is on both sides."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from rlvr_sad.trajectory import TRAINED, AgentTrajectory

IDS = ("task_id", "instance_id", "example_id", "problem_id", "question_id")
"""Labels that name a task; with `task` beside one of them, both do."""


def task_of(trajectory: AgentTrajectory, label: str = "") -> tuple[str, str]:
    """
    The task that a trajectory attempts, as a name, and how it is known.

    Args:
        trajectory: What was recorded.
        label: The label that names tasks; "" for the usual ones.

    Returns:
        The name, and "label" (the record says it), "task" (its label `task` alone says it, which
        may be the name of a data set), "prompt" (what stands before the model's first word) or
        "text" (nothing does: the whole text).
    """
    labels = trajectory.labels
    if label:
        if str(labels.get(label, "")):
            return str(labels[label]), "label"
    else:
        found = [str(labels[name]) for name in ("task", *IDS) if str(labels.get(name, ""))]
        if any(str(labels.get(name, "")) for name in IDS):
            return " ".join(found), "label"
        if found:
            return found[0], "task"
    return by_content(trajectory)


def by_content(trajectory: AgentTrajectory) -> tuple[str, str]:
    """The task as `task_of` names it where the record does not say."""
    prompt: list[str] = []
    for segment in trajectory.segments:
        if segment.type in TRAINED:
            break
        prompt.append(segment.text)
    text = "".join(prompt).strip()
    return (_hashed(text), "prompt") if text else (_hashed(trajectory.text.strip()), "text")


def held_out(tasks: Iterable[str], share: float) -> frozenset[str]:
    """
    The tasks that are kept from training: those whose hash lies below the share.

    A task stays on its side whatever else a corpus holds, but for the smallest ones: of two tasks
    or more, one at least is on each side.
    """
    places = {task: _place(task) for task in tasks}
    if share <= 0.0 or len(places) < 2:
        return frozenset()
    found = {task for task, place in places.items() if place < share}
    if not found:
        found = {min(places, key=lambda task: (places[task], task))}
    if len(found) == len(places):
        found.discard(max(places, key=lambda task: (places[task], task)))
    return frozenset(found)


def settled(named: Sequence[tuple[str, str]], fallbacks: Mapping[int, str]) -> list[str]:
    """
    The names of tasks, once all are known.

    A label `task` that is the same everywhere names a data set, not a task: content decides then.

    Args:
        named: What `task_of` gave, one a trajectory.
        fallbacks: By position, the name by content of those that only a label `task` names.
    """
    only = {name for name, how in named if how == "task"}
    if len(only) > 1:
        return [name for name, _ in named]
    return [fallbacks.get(i, name) for i, (name, _) in enumerate(named)]


def _place(task: str) -> float:
    """Where a task lies between 0 and 1."""
    digest = hashlib.sha256(b"held out\0" + task.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
