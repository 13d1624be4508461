"""One answer out of a file of `rlvr eval --out`, of `trajectories/`, or for `rlvr score`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr import Segment, Trajectory, UnknownNameError


def read_completion(path: Path, name: str, sample: int = 0) -> Trajectory:
    """
    The answer number `sample` (the first is 0) of those that a file holds for a problem.

    An answer is a line `{"id", "segments"}`, `{"id", "files"}` or `{"id", "completion"}`, read as
    `rlvr score` reads it; lines that are none are not counted.

    Raises:
        UnknownNameError: There is no such file, or it holds no such answer.
    """
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        found = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise _no_answer(path, name, f"{found}", "check the path") from None
    answers: list[Trajectory] = []
    wrong: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        record = read_record(line)
        if record.get("id") == name:
            try:
                answers.append(_answer(record, name))
            except (KeyError, TypeError, ValueError) as error:
                wrong.append(f"line {number} holds no whole answer: {error!r}")
    if 0 <= sample < len(answers):
        return answers[sample]
    if not answers:
        found = wrong[0] if wrong else f'no line with "id" {name!r} and an answer'
        do = "a line has id and completion, files or segments (rlvr eval --out writes such a file)"
        raise _no_answer(path, name, found, do)
    last = len(answers) - 1
    held = f"{len(answers)} answers to it" if last else "1 answer to it"
    which = f"--sample 0 to --sample {last}" if last else "--sample 0"
    raise _no_answer(path, name, f"--sample {sample}, and {held}", f"try: {which}")


def read_record(line: str) -> Mapping[str, Any]:
    """The JSON object of a line, {} if it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _answer(record: Mapping[str, Any], name: str) -> Trajectory:
    files, completion = record.get("files"), record.get("completion")
    if isinstance(files, dict) and not all(isinstance(text, str) for text in files.values()):
        raise ValueError("files are no path to text")
    if isinstance(record.get("segments"), list):
        segments = [Segment(**segment) for segment in record["segments"]]
        return Trajectory(problem_id=name, segments=segments, files=files)
    if isinstance(files, dict):
        return Trajectory(problem_id=name, files=files)
    if isinstance(completion, str):
        return Trajectory.from_text(name, completion)
    raise ValueError("neither completion nor files nor segments")


def _no_answer(path: Path, name: str, found: str, do: str) -> UnknownNameError:
    asked = f"an answer to {name!r} was to be read from {path}."
    return UnknownNameError(asked, f"found: {found}", do)
