"""A corpus of files as problems, in their order; records without anything to learn are listed."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs
from attrs import define, field

from rlvr import ConfigError, Message, Problem
from rlvr_sad.config import SadConfig
from rlvr_sad.corpus.split import Named, held_out, settled, task_of
from rlvr_sad.replay.layout import before
from rlvr_sad.sessions.cache import TrajectoryCache
from rlvr_sad.sessions.prepare import Ready, prepare
from rlvr_sad.sessions.record import Rejected
from rlvr_sad.sessions.ref import TrajectoryRef
from rlvr_sad.trajectory import AgentTrajectory

_TITLE = 160
"""Characters of a problem's prompt that are held; the whole is read when it is needed."""
UNSEEN = "with pictures or the like: shown to a model that sees, text in their places to others"
CONSTANT = (
    "the label task is the same all over their file and names no task: what stands before the "
    "first word is the task"
)
JOINED = (
    "their tasks have several ids and count as one: a record without such an id has the same text "
    "before the first word (name tasks in all records, or with sad.split_by)"
)
NOTHING = "there is nothing to learn in it: neither reasoning nor action"


@define
class Corpus:
    """
    The records of some files, without their texts.

    Attributes:
        problems: One a trajectory that something can be learnt from, in the order of the files.
        unsupported: Where the others stand, and why they are no problems.
        notes: Note to how many trajectories have it.
        formats: Format to how many trajectories.
    """

    problems: list[Problem] = field(factory=list)
    unsupported: dict[str, str] = field(factory=dict)
    notes: Counter[str] = field(factory=Counter)
    formats: Counter[str] = field(factory=Counter)
    _read_as: str = ""
    _ids: Counter[str] = field(factory=Counter)

    def refuse(self, where: str, reason: str) -> None:
        """List a record as none to learn from."""
        name, again = where, 1
        while name in self.unsupported:
            again += 1
            name = f"{where} ({again})"
        self.unsupported[name] = reason

    def add(self, ready: Ready, source: str) -> None:
        """Add a trajectory to learn from; `~2` tells problems of one name apart."""
        self.notes.update(ready.trajectory.notes)
        if ready.trajectory.media():
            self.notes[UNSEEN] += 1
        name = f"{source}#{ready.trajectory.id}"
        self._ids[name] += 1
        again = self._ids[name]
        name = f"{name}~{again}" if again > 1 else name
        self.problems.append(_problem(ready, name, source, self._read_as))


def read_corpus(paths: Sequence[Path], config: SadConfig, cache: TrajectoryCache) -> Corpus:
    """
    Read files; each record's text is kept in the cache, and not here.

    Args:
        paths: The files, in order; those that `config` names are among them.
        config: Which of their records, and how they are split.
        cache: Where results of reading are kept.

    Raises:
        ConfigError: A file cannot be opened, or no record has the label that names tasks.
    """
    names = _names(paths)
    corpus = Corpus(read_as=config.format)
    named: list[Named] = []
    labels: set[str] = set()
    for found in prepare(paths, workers=config.workers, cache=cache, format_name=config.format):
        one = found if isinstance(found, Rejected) else found.trajectory
        source = names.get(one.source, one.source)
        where = f"{source}:{one.line} record {one.id}"
        if isinstance(found, Rejected):
            corpus.refuse(where, found.reason)
            continue
        one = found.trajectory
        corpus.formats[one.format] += 1
        reason = _too_low(one, config.min_reward) if one.is_supervised else NOTHING
        if reason:
            corpus.refuse(where, reason)
            continue
        corpus.add(found, source)
        labels |= one.labels.keys()
        named.append(attrs.evolve(task_of(one, config.split_by), source=source))
    if config.split_by and named:
        corpus.notes.update(_unlabelled(config.split_by, named, labels))
    known = settled(named, is_label=bool(config.split_by))
    counts = {CONSTANT: known.unnamed, JOINED: known.joined}
    corpus.notes.update({note: count for note, count in counts.items() if count})
    outside = held_out(known.tasks, config.held_out)
    corpus.problems = [
        attrs.evolve(
            problem,
            split="test" if task in outside else "train",
            labels={**problem.labels, "family": task},
        )
        for problem, task in zip(corpus.problems, known.tasks, strict=True)
    ]
    return corpus


def _problem(ready: Ready, name: str, source: str, read_as: str) -> Problem:
    one = ready.trajectory
    lengths: Counter[str] = Counter()
    for segment in one.segments:
        lengths[segment.type] += len(segment.text)
    return Problem(
        id=name,
        prompt=(Message(role="user", content=_title(one)),),
        labels={"format": one.format, "source": source},
        payload=TrajectoryRef(
            key=ready.key,
            index=ready.index,
            source=one.source,
            line=one.line,
            record=one.id,
            reasoning=lengths["reasoning"],
            action=lengths["action"],
            has_prompt=bool(before(one)),
            read_as=read_as,
        ),
        digest=_digest(one),
    )


def _digest(trajectory: AgentTrajectory) -> str:
    """Of what is learnt and read, and nothing else: no place, no label, no version of a reader."""
    content = [(s.role, s.type, s.text, s.media and s.media.source) for s in trajectory.segments]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _unlabelled(label: str, named: Sequence[Named], labels: Iterable[str]) -> dict[str, int]:
    """The note on records without the label that names tasks; all of them is an error."""
    without = sum(not one.fields for one in named)
    if without == len(named):
        raise ConfigError(
            f"tasks were to be told apart by the label {label} (sad.split_by).",
            f"found: no record has it; labels: {', '.join(sorted(labels)) or 'none'}",
            "name one of these, or call the records' own field task_id",
        )
    note = f"no label {label}: what stands before the first word is the task"
    return {note: without} if without else {}


def _title(trajectory: AgentTrajectory) -> str:
    """First words of a trajectory, for lists: the last prompt before the model's first word."""
    said = [s.text.strip() for s in trajectory.segments if s.type == "other" and s.text.strip()]
    text = next(iter(said), "") or trajectory.text.strip()
    return text if len(text) <= _TITLE else f"{text[: _TITLE - 3]}..."


def _too_low(trajectory: AgentTrajectory, least: float | None) -> str:
    if least is None:
        return ""
    value = trajectory.labels.get("reward")
    if not isinstance(value, int | float):
        return f"it names no reward, and at least {least:g} was asked for (sad.min_reward)"
    if value >= least:  # NaN is not
        return ""
    return f"its reward {value:g} is below {least:g} (sad.min_reward)"


def _names(paths: Sequence[Path]) -> dict[str, str]:
    """Short names of files: from the folder that holds all of them."""
    if len(paths) < 2:
        return {str(path): path.name for path in paths}
    root = Path(os.path.commonpath([path.resolve().parent for path in paths]))
    return {str(path): path.resolve().relative_to(root).as_posix() for path in paths}
