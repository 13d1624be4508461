"""Four functions of one number; an answer is a formula such as `x+x`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from rlvr import Message, Problem, Task, Trajectory

SOLUTIONS = {"d": "x+x", "s": "x*x", "t": "x*3", "f": "x+3"}
"""A right formula of each function: double, square, triple, three further."""


class FormulaTask(Task):
    """One problem a function, `f` to test with; `problem.payload` is its letter."""

    def problems(self, split: str) -> Iterable[Problem]:
        """A problem for each function."""
        for letter, solution in SOLUTIONS.items():
            own = "test" if letter == "f" else "train"
            if split not in (own, "all"):
                continue
            yield Problem(
                id=f"formula_{letter}",
                prompt=[Message(role="user", content=f"{letter}=")],
                split=own,
                labels={"family": letter},
                payload=letter,
                digest=hashlib.sha256(solution.encode()).hexdigest(),
            )

    def reference(self, problem: Problem) -> Trajectory:
        """A right formula."""
        return Trajectory.from_text(problem.id, SOLUTIONS[problem.payload])


def starter() -> str:
    """A tiny untrained model over the ten signs of prompts and formulas, and an end."""
    tokenizer = Path(__file__).with_name("tokenizer.json")
    return f"gpt2:new?layers=1&heads=2&width=32&positions=16&tokenizer={tokenizer}"
