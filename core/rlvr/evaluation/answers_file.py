"""Read the answers to be judged, from JSON Lines or the references, and group them by problem."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from rlvr.border.promises import reference_of
from rlvr.errors import ConfigError, UnknownNameError
from rlvr.parts import Task
from rlvr.records.trajectories import trajectory_from_json
from rlvr.suggest import did_you_mean
from rlvr.types import Group, Outcome, Problem, Reward, ScoredGroup, Trajectory

__all__ = ["read_answers"]

NO_ANSWER = "the file holds no such answer"


def content_of(path: Path, asked: str, do: str) -> bytes:
    """
    The bytes of a file that a command was given.

    Raises:
        UnknownNameError: There is no such file.
    """
    if os.path.isfile(path):  # Path's raises where the name is too long: an answer itself
        return path.read_bytes()
    is_there = os.path.exists(path)
    found = "no regular file; standard input is named -" if is_there else "no such file"
    found = "a folder" if os.path.isdir(path) else found
    raise UnknownNameError(f"{asked} to be read from {path}.", f"found: {found}", do)


@frozen(kw_only=True)
class Answer:
    """One line of input: a trajectory to judge, or why it cannot be, with its number."""

    id: str = ""
    trajectory: Trajectory | None = None
    error: str = ""
    line: int = 0


def golden_answers(task: Task, problems: Iterable[Problem]) -> Iterator[Answer]:
    """The reference of each problem; problems without one are named with an error."""
    for problem in problems:
        reference = reference_of(task, problem)
        error = "" if reference is not None else "the data set holds no reference answer"
        yield Answer(id=problem.id, trajectory=reference, error=error)


def none_found(source: str | bytes, doing: str, problems: int, split: str) -> ConfigError:
    """The error of a command that was given answers, of which none is to a problem of a split."""
    name = "completions" if isinstance(source, bytes) else source
    name = "standard input" if name == "-" else name
    return ConfigError(
        f"the answers in {name} were to be {doing}.",
        f"found: none for any of the {problems} problems of split '{split}'",
        'a line is {"id": ..., "completion": ...} or {"id": ..., "files": {...}}; '
        "check --dataset and --split",
    )


def read_answers(
    source: str | bytes, problems: Mapping[str, Problem], unsupported: Mapping[str, str]
) -> Iterator[Answer]:
    """
    Answers in the order of a file: `{"id", "completion"}` or `{"id", "files": {path: text}}`.

    `source` is the file's path, `-` for standard input, or as bytes what such a file holds.

    A line of a run's `trajectories/`, or of `rlvr eval --out`, is an answer as well. A line that
    cannot be read becomes an answer with an error that names its number; the others go on.

    Raises:
        UnknownNameError: There is no such file.
    """
    do = "check the path given with --completions"
    if source == "-":
        source = sys.stdin.buffer.read()
    if isinstance(source, str):
        source = content_of(Path(source), "answers were", do)
    for number, line in enumerate(source.split(b"\n"), start=1):
        if line.strip():
            yield attrs.evolve(_answer(line, number, problems, unsupported), line=number)


def _answer(
    line: bytes, number: int, problems: Mapping[str, Problem], unsupported: Mapping[str, str]
) -> Answer:
    try:
        record: Any = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return Answer(error=f"line {number}: byte {error.start + 1} of it is not UTF-8")
    except json.JSONDecodeError as error:
        return Answer(error=f"line {number}: not JSON: {error.msg} (column {error.colno})")
    except (ValueError, RecursionError) as error:  # a number of too many digits; nested too deep
        return Answer(error=f"line {number}: not readable as JSON: {error}")
    given = record.get("id") if isinstance(record, dict) else None
    if not isinstance(given, str | int) or isinstance(given, bool):
        return Answer(error=f'line {number}: no "id" (wanted an object with "id" as text)')
    name = str(given)
    if name in unsupported:
        return Answer(id=name, error=f"unscorable: line {number}: unsupported: {unsupported[name]}")
    if name not in problems:
        hint = did_you_mean(name, problems)
        said = f"line {number}: no problem {name!r} in the data set"
        return Answer(id=name, error=f"{said}; {hint}" if hint else said)
    files, completion = record.get("files"), record.get("completion")
    if isinstance(record.get("segments"), list):
        try:
            return Answer(id=name, trajectory=trajectory_from_json(record))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            return Answer(id=name, error=f"line {number}: no whole trajectory: {error!r}")
    if isinstance(files, dict) and all(isinstance(v, str) for v in files.values()):
        return Answer(id=name, trajectory=Trajectory(problem_id=name, files=files))
    if isinstance(completion, str):
        return Answer(id=name, trajectory=Trajectory.from_text(name, completion))
    return Answer(
        id=name, error=f'line {number}: neither "completion" as text nor "files" as path to text'
    )


@frozen(kw_only=True)
class Completions:
    """
    Answers by problem.

    Attributes:
        groups: One a problem, in the order of the problems; the trajectories in that of the file.
            A problem without an answer has an empty one.
        samples: Answers that every problem should have (n).
        unusable: What is wrong with the lines that are no answer to one of the problems.
        surplus: Answers past the n-th of their problem, which are left out.
    """

    groups: tuple[Group, ...]
    samples: int
    unusable: tuple[str, ...] = ()
    surplus: int = 0

    @property
    def missing(self) -> Mapping[str, int]:
        """Number of missing answers by problem id, of problems that lack some."""
        short = {g.problem.id: self.samples - len(g.trajectories) for g in self.groups}
        return {name: count for name, count in short.items() if count}


def group_answers(
    answers: Iterable[Answer], problems: Sequence[Problem], samples: int = 0
) -> Completions:
    """
    Answers as groups.

    Args:
        answers: As `read_answers` yields them.
        problems: Those that are evaluated.
        samples: Answers that count for each problem, the first ones; 0: as many as any has.
    """
    found: dict[str, list[Trajectory]] = {p.id: [] for p in problems}
    unusable = []
    for answer in answers:
        if answer.trajectory is None:
            unusable.append(answer.error)
        elif answer.id not in found:
            unusable.append(
                f"line {answer.line}: {answer.id!r} is not among the problems that are evaluated"
                " (--split all takes those of every split)"
            )
        else:
            found[answer.id].append(answer.trajectory)
    wanted = samples or max((len(t) for t in found.values()), default=0)
    return Completions(
        groups=tuple(Group(problem=p, trajectories=found[p.id][:wanted]) for p in problems),
        samples=wanted,
        unusable=tuple(unusable),
        surplus=sum(max(len(t) - wanted, 0) for t in found.values()),
    )


def with_missing(
    scored: Sequence[ScoredGroup], samples: int, lowest: float, *, as_wrong: bool
) -> list[ScoredGroup]:
    """
    The scored groups with an outcome for each missing answer: wrong, or left out.

    Args:
        scored: One group a problem.
        samples: Answers that every problem should have.
        lowest: The lowest reward there is: what a missing answer earns as a wrong one.
        as_wrong: False leaves missing answers out, and problems without any answer with them.
    """
    if not as_wrong:
        return [group for group in scored if group.outcomes]
    filled = []
    for group in scored:
        count = max(samples - len(group.outcomes), 0)
        nothing = Trajectory(problem_id=group.problem.id, error=NO_ANSWER)
        wrong = Reward(value=lowest, score01=0.0, evidence={"missing": NO_ANSWER})
        trajectories = [*group.trajectories, *[nothing] * count]
        outcomes: list[Outcome] = [*group.outcomes, *[wrong] * count]
        filled.append(attrs.evolve(group, trajectories=trajectories, outcomes=outcomes))
    return filled
