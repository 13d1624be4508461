"""One answer out of a file of `rlvr eval --out`, of `trajectories/`, or for `rlvr score`."""

from __future__ import annotations

from pathlib import Path

from rlvr import Problem, Trajectory, UnknownNameError, read_answers


def read_completion(path: Path, problem: Problem, sample: int = 0) -> Trajectory:
    """
    The answer number `sample` (the first is 0) of those that a file holds for a problem.

    Lines that are no answer are not counted.

    Raises:
        UnknownNameError: There is no such file, or it holds no such answer.
    """
    name = problem.id
    found = [one for one in read_answers(str(path), {name: problem}, {}) if one.id == name]
    answers = [one.trajectory for one in found if one.trajectory is not None]
    if 0 <= sample < len(answers):
        return answers[sample]
    asked = f"an answer to {name!r} was to be read from {path}."
    if not answers:
        wrong = found[0].error if found else f'no line with "id" {name!r} and an answer'
        do = "a line has id and completion, files or segments (rlvr eval --out writes such a file)"
        raise UnknownNameError(asked, f"found: {wrong}", do)
    last = len(answers) - 1
    held = f"{len(answers)} answers to it" if last else "1 answer to it"
    which = f"--sample 0 to --sample {last}" if last else "--sample 0"
    raise UnknownNameError(asked, f"found: --sample {sample}, and {held}", f"try: {which}")
