"""
Measures how well the harnesses judge: right answers pass, one-operator mutants fail.

    PYTHONPATH=rlvr-cvdp/starter_model python -m starter_problems.strength [--mutants 12]

Mutants that do not compile are skipped, and so are those that no input tells from the
solution (see `equivalence`). Exits with 1 when a harness refuses its solution or rejects less
than nine mutants in ten.
"""

from __future__ import annotations

import argparse
import random
import sys

from attrs import field, frozen

from .build import Row, drafts, row
from .draft import Draft
from .equivalence import is_indistinguishable
from .judge import judge
from .mutants import mutants

LEAST = 0.9


@frozen
class Strength:
    """What was found for one problem."""

    problem_id: str
    accepts_solution: bool
    rejected: int
    judged: int
    equivalent: int
    survivors: tuple[str, ...] = field(repr=False)

    @property
    def is_enough(self) -> bool:
        """Solution accepted, mutants rejected."""
        return self.accepts_solution and self.rejected >= LEAST * self.judged


def measure(problem: Row, draft: Draft, limit: int) -> Strength:
    """Judge the solution and up to ``limit`` compiling, distinguishable mutants."""
    accepts = judge(problem, {draft.target: draft.solution}).is_right
    found = mutants(draft.solution)
    random.Random(problem["id"]).shuffle(found)
    rejected = judged = equivalent = 0
    survivors = []
    for mutant in found:
        if judged == limit:
            break
        verdict = judge(problem, {draft.target: mutant.text})
        if not verdict.compiles:
            continue
        if not verdict.is_right:
            judged, rejected = judged + 1, rejected + 1
        elif is_indistinguishable(draft.solution, mutant.text, draft.design.ports):
            equivalent += 1
        else:
            judged += 1
            survivors.append(f"{mutant.kind}: {_difference(draft.solution, mutant.text)}")
    return Strength(problem["id"], accepts, rejected, judged, equivalent, tuple(survivors))


def _difference(before: str, after: str) -> str:
    lines = before.split("\n")
    return " / ".join(line.strip() for line in after.split("\n") if line not in lines)


def main(arguments: list[str]) -> int:
    """Measure every problem, print one line each and the whole."""
    parser = argparse.ArgumentParser(description="Share of mutants that the harnesses reject.")
    parser.add_argument("--mutants", type=int, default=12, help="mutants a problem, at most")
    parser.add_argument("--only", help="one family instead of all")
    options = parser.parse_args(arguments)
    results = []
    for problem_id, split, draft in drafts():
        if options.only not in (None, draft.family):
            continue
        result = measure(row(problem_id, split, draft), draft, options.mutants)
        results.append(result)
        mark = "ok  " if result.is_enough else "WEAK"
        solution = "" if result.accepts_solution else "  refuses its solution"
        print(
            f"{mark} {problem_id}: {result.rejected}/{result.judged} rejected, "
            f"{result.equivalent} equivalent{solution}",
            flush=True,
        )
        for survivor in result.survivors:
            print(f"       survived  {survivor}")
    rejected, judged = (sum(getattr(r, f) for r in results) for f in ("rejected", "judged"))
    weak = [r for r in results if not r.is_enough]
    print(f"{len(results)} problems, {rejected}/{judged} mutants rejected, {len(weak)} weak")
    return 1 if weak else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
