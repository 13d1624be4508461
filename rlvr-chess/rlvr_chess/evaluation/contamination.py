"""Which positions of an evaluation were trained on, by their first four fields."""

from __future__ import annotations

from collections.abc import Container, Iterable

from rlvr.types import Figure, Problem
from rlvr_chess.evaluation.statistics import rate
from rlvr_chess.fen import FenError, four_fields


def seen_positions(fens: Iterable[str]) -> frozenset[str]:
    """The four fields of the positions that were trained on."""
    found = set()
    for fen in fens:
        try:
            found.add(four_fields(fen))
        except FenError:
            continue  # no position at all: nothing of the evaluation can equal it
    return frozenset(found)


def is_seen(problem: Problem, seen: Container[str]) -> bool:
    """Whether the position of a problem was trained on."""
    return four_fields(problem.payload.fen) in seen


def figures(problems: Iterable[Problem], seen: Container[str], note: str) -> list[Figure]:
    """The share of positions seen, of all problems and of each kind."""
    by_kind: dict[str, dict[str, bool]] = {}
    for problem in problems:
        position = four_fields(problem.payload.fen)
        kind = problem.labels.get("task", "")
        by_kind.setdefault(kind, {})[position] = position in seen
    every = {position: hit for kind in by_kind.values() for position, hit in kind.items()}
    found = [rate("contamination/seen", list(every.values()), note)]
    for kind, positions in sorted(by_kind.items()):
        if kind:
            found.append(rate(f"contamination/seen/{kind}", list(positions.values())))
    return found
