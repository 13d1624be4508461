"""Where the problems come from: a JSON Lines file, one puzzle a line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from rlvr import (
    BuildContext,
    Message,
    Problem,
    Task,
    Trajectory,
    UnknownNameError,
)

EMBEDDED = Path(__file__).with_name("puzzles.jsonl")


@frozen(kw_only=True)
class Puzzle:
    """What the reward needs to know of a problem, and the answer that the file holds."""

    numbers: tuple[int, ...]
    target: int
    solution: str


class CountdownTask(Task):
    """Puzzles such as: reach 24 with 3, 5 and 9."""

    def __init__(self, config: None, context: BuildContext) -> None:
        path = context.dataset or EMBEDDED  # --dataset PATH
        if not path.is_file():
            raise UnknownNameError(f"no data set at {path}.", "found: nothing", "check --dataset")
        self._problems: list[Problem] = []
        self._unsupported: dict[str, str] = {}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                self._problems.append(_problem(json.loads(line)))
            except (ValueError, KeyError, TypeError) as error:
                self._unsupported[f"line {number}"] = f"{type(error).__name__}: {error}"

    def problems(self, split: str) -> Iterable[Problem]:
        """Problems of "train", "test" or "all", as the file orders them."""
        return [p for p in self._problems if split in (p.split, "all")]

    def reference(self, problem: Problem) -> Trajectory:
        """The file's own solution: it must earn the full reward."""
        return Trajectory.from_text(problem.id, f"<answer>{problem.payload.solution}</answer>")

    def unsupported(self) -> Mapping[str, str]:
        """Lines that are no puzzle, with the reason. Nothing is dropped in silence."""
        return self._unsupported


def _problem(row: Mapping[str, Any]) -> Problem:
    puzzle = Puzzle(
        numbers=tuple(int(n) for n in row["numbers"]),
        target=int(row["target"]),
        solution=str(row["solution"]),
    )
    numbers = ", ".join(str(n) for n in puzzle.numbers)
    prompt = (
        f"Use each of the numbers {numbers} exactly once, with + - * / and parentheses, "
        f"to make {puzzle.target}. Give the expression between <answer> and </answer>."
    )
    return Problem(
        id=str(row["id"]),
        prompt=[Message(role="user", content=prompt)],
        split=str(row["split"]),
        payload=puzzle,  # for the reward alone: the model sees the prompt
        # kept verdicts are found by it: it changes with whatever decides one
        digest=hashlib.sha256(f"{puzzle.numbers} {puzzle.target}".encode()).hexdigest(),
    )
