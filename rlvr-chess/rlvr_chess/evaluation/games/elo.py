"""Elo from games against rungs of known strength, with an interval.

P(win) + P(draw) / 2 = 1 / (1 + 10^((other - own) / 400)). All ratings are fitted together by
penalised maximum likelihood: a rung's rating is known from its calibration as a normal
distribution, which its games here may move a little. The bootstrap draws opening *pairs* (one
opening, both colours: their results hang together), and the rungs' ratings by their calibration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from attrs import frozen

from rlvr import Metric
from rlvr_chess.evaluation.statistics import Z, left_out

SCALE = np.log(10) / 400
FARTHEST = 4000.0
"""Ratings are kept within this of 0: a resample of only won games has none."""
MOST_STEPS = 60
DRAWS = 500
MODEL = "model"


@frozen(kw_only=True)
class Rung:
    """An opponent whose rating is known: its calibrated value and 95 % interval."""

    name: str
    rating: float
    low: float
    high: float

    @property
    def deviation(self) -> float:
        """Standard deviation of the calibration; 0: the rating defines the scale."""
        return (self.high - self.low) / (2 * Z)


@frozen(kw_only=True)
class Pair:
    """Points (0..2) of `one` in the two games of an opening against `other`."""

    one: str
    other: str
    points: float
    games: int = 2


def expected(difference: float) -> float:
    """Expected score (0..1) of a player rated `difference` above the other."""
    return float(1.0 / (1.0 + 10.0 ** (-difference / 400.0)))


def fit(
    pairs: Sequence[Pair],
    known: Mapping[str, tuple[float, float]],
    start: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """
    The rating of every player, by Newton's method on the (concave) log posterior.

    `known` has rating and standard deviation of the players that have one (0: held fixed), `start`
    where to begin, such as the ratings of a similar set of results.
    """
    totals: dict[tuple[str, str], tuple[float, int]] = {}
    for pair in pairs:
        points, games = totals.get((pair.one, pair.other), (0.0, 0))
        totals[pair.one, pair.other] = (points + pair.points, games + pair.games)
    names = sorted({name for met in totals for name in met})
    place = {name: i for i, name in enumerate(names)}
    begun = {name: rating for name, (rating, _) in known.items()} | dict(start or {})
    ratings = np.array([begun.get(name, 0.0) for name in names])
    for name, (rating, deviation) in known.items():
        if name in place and not deviation:
            ratings[place[name]] = rating
    free = [i for i, name in enumerate(names) if known.get(name, (0.0, 1.0))[1] > 0]
    for _ in range(MOST_STEPS):
        gradient, hessian = np.zeros(len(names)), np.eye(len(names)) * 1e-12
        for (one, other), (points, games) in totals.items():
            i, j = place[one], place[other]
            share = expected(ratings[i] - ratings[j])
            slope, bend = SCALE * (points - games * share), SCALE**2 * games * share * (1 - share)
            gradient[i] += slope
            gradient[j] -= slope
            hessian[[i, j, i, j], [i, j, j, i]] += (bend, bend, -bend, -bend)
        for name, (rating, deviation) in known.items():
            if name in place and deviation > 0:
                gradient[place[name]] += (rating - ratings[place[name]]) / deviation**2
                hessian[place[name], place[name]] += 1 / deviation**2
        step = np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
        ratings[free] = np.clip(ratings[free] + np.clip(step, -200, 200), -FARTHEST, FARTHEST)
        if np.abs(step).max() < 1e-4:
            break
    return {name: float(ratings[i]) for name, i in place.items()}


def elo_figure(name: str, pairs: Sequence[Pair], rungs: Sequence[Rung], note: str = "") -> Metric:
    """
    The model's rating with its 95 % interval.

    Rungs that it only beat or only lost to say no more than "above" or "below"; where there are
    no others the figure is left out and the note says that.
    """
    ladder = sorted(rungs, key=lambda rung: rung.rating)
    scores = {rung.name: score(pairs, rung.name) for rung in ladder}
    met = [rung for rung in ladder if scores[rung.name] is not None]
    telling = [rung for rung in met if 0.0 < (scores[rung.name] or 0.0) < 1.0]
    if not telling:
        return left_out(name, _outside(met, scores, len(pairs)))
    kept = [pair for pair in pairs if pair.other in {rung.name for rung in telling}]
    known = {rung.name: (rung.rating, rung.deviation) for rung in telling}
    fitted = fit(kept, known)
    low, high = np.percentile(_redrawn(kept, telling, fitted), [2.5, 97.5])
    games = sum(pair.games for pair in kept)
    said = f"relative to random = 0, against {', '.join(rung.name for rung in telling)}"
    note = "; ".join(filter(None, [said, note]))
    value, low, high = fitted[MODEL], float(low), float(high)
    return Metric(name=name, value=value, low=low, high=high, n=games, note=note)


def score(pairs: Sequence[Pair], other: str) -> float | None:
    """The model's share of points against a rung, None where they never met."""
    met = [pair for pair in pairs if pair.other == other]
    return sum(p.points for p in met) / sum(p.games for p in met) if met else None


def _redrawn(
    pairs: Sequence[Pair], rungs: Sequence[Rung], fitted: Mapping[str, float]
) -> list[float]:
    rng = np.random.default_rng(0)
    by_rung = [[pair for pair in pairs if pair.other == rung.name] for rung in rungs]
    ratings = []
    for _ in range(DRAWS):
        drawn = [
            same[i] for same in by_rung for i in rng.integers(0, len(same), len(same)).tolist()
        ]
        known = {
            rung.name: (rung.rating + rung.deviation * float(rng.normal()), rung.deviation)
            for rung in rungs
        }
        ratings.append(fit(drawn, known, start=fitted)[MODEL])
    return ratings


def _outside(met: Sequence[Rung], scores: Mapping[str, float | None], pairs: int) -> str:
    if not met:
        return "no games were played"
    lost = [rung.name for rung in met if scores[rung.name] == 0.0]
    won = [rung.name for rung in met if scores[rung.name] == 1.0]
    where = [f"below {lost[0]}"] if lost else []
    where += [f"above {won[-1]}"] if won else []
    return f"{' and '.join(where)}: no rung with a score between 0 and 100 % in {2 * pairs} games"
