"""
Which trajectories are held out: whole tasks, so that none is on both sides.

Two trajectories attempt the same task where their records name it alike, or where the same text
stands before the agent's first word and they do not name it by the same fields: one of them by an
id that the other lacks. Two ids of one field that differ are two tasks whatever the text. What
follows from that by way of others holds too. A label `task` that never differs in a file is the
name of a data set, and names no task.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from attrs import evolve, frozen

from rlvr_sad.trajectory import TRAINED, AgentTrajectory

IDS = ("task_id", "instance_id", "example_id", "problem_id", "question_id")
"""Labels that name a task; with `task` beside one of them, both do."""
ONLY_TASK = ("task",)


@frozen(kw_only=True)
class Named:
    """
    How the task of one trajectory is known.

    Attributes:
        name: What its record calls it; `content` where it does not.
        fields: The labels that the name is made of; () where it is the content.
        content: Of what stands before the agent's first word, or of the whole text where nothing
            does: a hash.
        source: The file.
    """

    name: str
    fields: tuple[str, ...]
    content: str
    source: str = ""


@frozen(kw_only=True)
class Settled:
    """
    The tasks, once all trajectories are known.

    Attributes:
        tasks: Name of the task, one a trajectory.
        unnamed: Trajectories whose label `task` never differs in their file.
        joined: Trajectories of tasks that have several ids, because a text without id joins them.
    """

    tasks: tuple[str, ...]
    unnamed: int
    joined: int


def task_of(trajectory: AgentTrajectory, label: str = "") -> Named:
    """
    How a record names its task.

    Args:
        trajectory: What was recorded.
        label: The label that names tasks; "" for the usual ones.
    """
    labels, content = trajectory.labels, by_content(trajectory)
    wanted = (label,) if label else ("task", *IDS)
    fields = tuple(name for name in wanted if str(labels.get(name, "")))
    name = " ".join(str(labels[field]) for field in fields)
    return Named(name=name or content, fields=fields, content=content, source=trajectory.source)


def by_content(trajectory: AgentTrajectory) -> str:
    """A hash of the words before the model's first one; of all words where there are none."""
    prompt: list[str] = []
    for segment in trajectory.segments:
        if segment.type in TRAINED:
            break
        prompt.append(segment.text)
    words = "".join(prompt).split() or trajectory.text.split()
    return hashlib.sha256(" ".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def settled(named: Sequence[Named], *, is_label: bool = False) -> Settled:
    """
    The task of each trajectory: a function of all of them, whatever their order.

    A task is called as its records call it, where they do; of several names by the one whose hash
    is lowest, so that attempts without a name move no task to the other side.

    Args:
        named: What `task_of` gave.
        is_label: Whether a person named the label: then it names tasks even where it never differs.
    """
    kept = list(named) if is_label else _without_constants(named)
    by_text: dict[str, dict[tuple[str, ...], set[str]]] = {}
    for one in kept:
        by_text.setdefault(one.content, {}).setdefault(one.fields, set()).add(one.name)
    union = _Union()
    for by_fields in by_text.values():
        if len(by_fields) > 1:
            first, *others = sorted(set().union(*by_fields.values()))
            for other in others:
                union.join(first, other)
    given = {one.name for one in kept if one.fields}
    together: dict[str, set[str]] = {}
    for name in {one.name for one in kept}:
        together.setdefault(union.root(name), set()).add(name)
    called: dict[str, str] = {}
    several: set[str] = set()
    for names in together.values():
        own = names & given
        best = min(own or names, key=lambda name: (_place(name), name))
        called |= dict.fromkeys(names, best)
        several |= {best} if len(own) > 1 else set()
    tasks = tuple(called[one.name] for one in kept)
    return Settled(
        tasks=tasks,
        unnamed=sum(a.fields != b.fields for a, b in zip(named, kept, strict=True)),
        joined=sum(task in several for task in tasks),
    )


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


def _without_constants(named: Sequence[Named]) -> list[Named]:
    """
    If the label `task` is the same for all, it names a data set: content then names the task.

    It never differs in its file, where that has two such records or more; else in its folder, where
    that has two or more; else in the whole corpus.
    """
    found: dict[tuple[int, str], list[str]] = {}  # scope and place to the names in it
    for one in named:
        if one.fields == ONLY_TASK:
            for place in _places(one):
                found.setdefault(place, []).append(one.name)
    kept = []
    for one in named:
        near = (found.get(place, ()) for place in _places(one))
        names = next((inside for inside in near if len(inside) > 1), ())
        if one.fields == ONLY_TASK and len(set(names)) < 2:
            one = evolve(one, name=one.content, fields=())
        kept.append(one)
    return kept


def _places(one: Named) -> list[tuple[int, str]]:
    """Its file, its folder and the whole corpus."""
    return list(enumerate((one.source, str(PurePath(one.source).parent), "")))


class _Union:
    """Names that mean the same."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def root(self, name: str) -> str:
        while name in self._above:
            self._above[name] = self._above.get(self._above[name], self._above[name])
            name = self._above[name]
        return name

    def join(self, one: str, other: str) -> None:
        one, other = self.root(one), self.root(other)
        if one != other:
            self._above[other] = one


def _place(task: str) -> float:
    """Where a task lies between 0 and 1."""
    digest = hashlib.sha256(b"held out\0" + task.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
