"""The headline figures again, on positions that were not trained on."""

from __future__ import annotations

from collections.abc import Container, Sequence

from rlvr.types import Figure, Problem
from rlvr_chess.evaluation.bench import Found
from rlvr_chess.evaluation.contamination import is_seen
from rlvr_chess.evaluation.environment import by_category, headline
from rlvr_chess.evaluation.statistics import left_out, mean, rate

UNSEEN = "contamination/unseen"


def unseen_figures(problems: Sequence[Problem], found: Found, seen: Container[str]) -> list[Figure]:
    """Best moves, regret, exact states, puzzles and suites of unseen positions."""
    kept = {problem.id for problem in problems if not is_seen(problem, seen)}
    if len(kept) == len(problems):
        return [left_out(UNSEEN, "no position was seen: all figures are of unseen positions")]
    judged = [one for name, one in found.policy.items() if name in kept]
    told = [one for name, one in found.environment.items() if name in kept]
    lines = [one.is_whole for name, one in found.puzzles.items() if name in kept]
    solved = [one.points == 1.0 for name, one in found.suites.items() if name in kept]
    exact = [one.is_exact for one in told]
    figures = []
    if found.policy:
        figures.append(rate(f"{UNSEEN}/policy/best", [one.is_best for one in judged]))
        figures.append(mean(f"{UNSEEN}/policy/regret", [one.regret for one in judged]))
    if found.environment:
        figures.append(headline(f"{UNSEEN}/environment/macro", by_category(told, exact)))
        figures.append(rate(f"{UNSEEN}/environment/exact", exact))
    if found.puzzles:
        figures.append(rate(f"{UNSEEN}/puzzles/line", lines))
    if found.suites:
        figures.append(rate(f"{UNSEEN}/suites/solved", solved))
    return figures
