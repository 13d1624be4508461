"""Test suites of EPD: how many are solved; STS by the points of its moves."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from rlvr.types import Figure
from rlvr_chess.evaluation.statistics import mean, rate
from rlvr_chess.records import Solution

ORDER = ("wac", "ecm", "bk", "sts")
"""Suites that the literature quotes come first."""


@frozen(kw_only=True)
class Tried:
    """A position of a suite and the legal move that was chosen, None: none."""

    position: Solution
    move: str | None

    @property
    def points(self) -> float:
        """0..1; an `am` position gives 1 to any legal move that is not to be avoided."""
        if self.move is None:
            return 0.0
        if self.position.points:
            return self.position.points.get(self.move, 0.0)
        return float(self.move not in self.position.avoid)


def figures(tried: Sequence[Tried]) -> list[Figure]:
    """Of each suite the share solved; where moves have points between, their mean."""
    names = {one.position.suite for one in tried}
    found = []
    for name in [*(n for n in ORDER if n in names), *sorted(names - set(ORDER))]:
        points = [one.points for one in tried if one.position.suite == name]
        solved = [value == 1.0 for value in points]
        label = f"suites/{name or 'other'}"
        found.append(rate(f"{label}/solved", solved, f"{sum(solved)} of {len(solved)}"))
        if _has_parts([one for one in tried if one.position.suite == name]):
            note = f"{sum(points):.1f} of {len(points)}"
            found.append(mean(f"{label}/points", points, note))
    return found


def _has_parts(tried: Sequence[Tried]) -> bool:
    return any(0.0 < value < 1.0 for one in tried for value in one.position.points.values())
