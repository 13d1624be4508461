"""Intervals and estimators: Wilson for rates, the bootstrap for means, Kaplan-Meier, Kendall.

By hand, as scipy would replace 40 lines (Wilson, Kaplan-Meier, Kendall) by a wheel of 35 MB
that nothing else in this package needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rlvr import Metric

Z = 1.959963984540054
"""Two-sided 95 % of the normal distribution."""
DRAWS = 2000
"""Samples of a bootstrap."""
ENOUGH = 10
"""Rows of a class from which its bootstrap is believed; fewer may agree by chance."""
REDRAWN_CURVES = 400
"""The same for survival curves, which cost more."""
NOTHING = float("nan")


def wilson(hits: int, n: int) -> tuple[float, float]:
    """
    The 95 % score interval of a share (Wilson 1927): inside 0..1, sensible at 0 and n hits.

    Raises:
        ValueError: Not 0 <= hits <= n, or nothing was counted.
    """
    if not 0 <= hits <= n or n == 0:
        raise ValueError(f"{hits} of {n} is no share")
    share, square = hits / n, Z * Z
    centre = (share + square / (2 * n)) / (1 + square / n)
    half = Z / (1 + square / n) * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    low = 0.0 if hits == 0 else centre - half
    return low, 1.0 if hits == n else centre + half


def left_out(name: str, why: str) -> Metric:
    """A number that could not be measured: no value, n = 0, and the reason."""
    return Metric(name=name, value=NOTHING, low=NOTHING, high=NOTHING, n=0, note=why)


def rate(name: str, hits: Sequence[bool], note: str = "") -> Metric:
    """A share of yes among independent cases, with Wilson's interval."""
    if not hits:
        return left_out(name, note or "nothing to measure it on")
    count = sum(hits)
    low, high = wilson(count, len(hits))
    return Metric(name=name, value=count / len(hits), low=low, high=high, n=len(hits), note=note)


def mean(name: str, values: Sequence[float], note: str = "") -> Metric:
    """
    A mean over positions (or games), which are what the bootstrap draws again.

    One value tells nothing of its spread: it has no interval (NaN).
    """
    return ratio(name, [(value, 1.0) for value in values], note)


def ratio(name: str, parts: Sequence[tuple[float, float]], note: str = "") -> Metric:
    """
    Sum over sum, such as wrong signs over moves, where a position has several of them.

    `parts` are (numerator, denominator) of each position; positions are drawn again. Where only
    one position counts there is no interval (NaN): drawn again it is always the same.
    """
    pairs = np.array(parts, dtype=float).reshape(-1, 2)  # (n, 2)
    if not pairs[:, 1].sum():
        return left_out(name, note or "nothing to measure it on")
    low = high = NOTHING
    if (pairs[:, 1] > 0).sum() > 1:
        above, below = _redrawn_means(pairs).T  # (DRAWS,)
        low, high = _middle(above[below > 0] / below[below > 0])
    value = float(pairs[:, 0].sum() / pairs[:, 1].sum())
    return Metric(name=name, value=value, low=low, high=high, n=len(pairs), note=note)


def macro(name: str, classes: Mapping[str, Sequence[float]], note: str = "") -> Metric:
    """
    Mean of the classes' means, each class counting the same: no class drowns in a larger one.

    Balanced accuracy is this of hits by true class. Where every class has `ENOUGH` rows, the
    bootstrap draws within each class. It cannot draw what a small class never showed: the interval
    of classes of one row would have no width. So with any smaller class it is the normal one of a
    sum of shares, p(1 - p) / n a class with p = (hits + 1) / (n + 2), which add one hit and one
    miss as Agresti and Caffo do (2000, The American Statistician 54:280); they divide by n + 2, by
    n it is wider. It stays around the mean that was measured, and within 0..1. The values are of
    0..1; a class without any does not count.
    """
    kept = {key: np.array(values, dtype=float) for key, values in classes.items() if len(values)}
    if not kept:
        return left_out(name, note or "nothing to measure it on")
    value = float(np.mean([v.mean() for v in kept.values()]))
    if min(len(v) for v in kept.values()) < ENOUGH:
        shares = [((v.sum() + 1) / (len(v) + 2), len(v)) for v in kept.values()]
        half = Z * math.sqrt(sum(p * (1 - p) / n for p, n in shares)) / len(kept)
        low, high = max(0.0, value - half), min(1.0, value + half)
    else:
        salted = [_redrawn_means(v, salt=i) for i, v in enumerate(kept.values())]
        low, high = _middle(np.mean(salted, axis=0))
    n = sum(len(v) for v in kept.values())
    return Metric(name=name, value=value, low=low, high=high, n=n, note=note)


def survival(times: Sequence[int], happened: Sequence[bool]) -> list[tuple[int, float]]:
    """
    Kaplan-Meier's estimate: (time, share still going after it), at the times of events.

    Each case was watched for its time; where the event did not come then it is censored.
    """
    curve, share = [], 1.0
    for time in sorted({t for t, h in zip(times, happened, strict=True) if h}):
        at_risk = sum(t >= time for t in times)
        events = sum(t == time and h for t, h in zip(times, happened, strict=True))
        share *= 1 - events / at_risk
        curve.append((time, share))
    return curve


def median_survival(times: Sequence[int], happened: Sequence[bool]) -> float:
    """The first time at which half or fewer are still going; infinity where that is never."""
    curve = survival(times, happened)
    return next((float(time) for time, share in curve if share <= 0.5 + 1e-12), math.inf)


def survival_figure(
    name: str, times: Sequence[int], happened: Sequence[bool], note: str = ""
) -> Metric:
    """
    The median of `survival`, its interval by drawing cases again.

    An upper end that is never reached is given as the longest time watched, and the note says so.
    One case has no interval (NaN).
    """
    if not times:
        return left_out(name, note or "nothing to measure it on")
    value = median_survival(times, happened)
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(REDRAWN_CURVES):
        again = rng.integers(0, len(times), len(times)).tolist()
        drawn.append(median_survival([times[i] for i in again], [happened[i] for i in again]))
    drawn.sort()
    low, high = drawn[len(drawn) // 40], drawn[-1 - len(drawn) // 40]
    if math.isinf(value):
        at_least = f"; at least {low:.0f}" if math.isfinite(low) else ""
        return left_out(name, f"half of the {len(times)} cases never came to it{at_least}")
    if len(times) == 1:
        low = high = NOTHING
    if math.isinf(high):
        high, note = float(max(times)), "; ".join(filter(None, [note, "upper end is open"]))
    return Metric(name=name, value=value, low=low, high=high, n=len(times), note=note)


def kendall_tau(one: Sequence[float], other: Sequence[float]) -> float | None:
    """
    Kendall's tau-b of two rankings (ties count as neither): 1 same order, -1 reversed.

    None where `other`, the truth, holds one value only; 0 where `one` does: it orders nothing.
    """
    mine, true = (_order(values) for values in (one, other))
    if not true.any():
        return None
    ordered = math.sqrt(np.abs(mine).sum() * np.abs(true).sum())
    return float((mine * true).sum() / ordered) if ordered else 0.0


def _order(values: Sequence[float]) -> NDArray[np.int64]:
    """Of each pair (n, n) the sign of its difference; 0 of ties and of what is NaN."""
    array = np.array(values, dtype=float)
    later, earlier = array[:, None], array[None, :]
    return (later > earlier).astype(int) - (later < earlier)


def _redrawn_means(values: NDArray[np.float64], salt: int = 0) -> NDArray[np.float64]:
    """Means over n cases drawn with replacement: (n, ...) gives (DRAWS, ...)."""
    rng = np.random.default_rng(salt)
    at_once = max(1, 1_000_000 // len(values))  # bounds the memory
    return np.concatenate(
        [
            values[rng.integers(0, len(values), (min(at_once, DRAWS - done), len(values)))].mean(1)
            for done in range(0, DRAWS, at_once)
        ]
    )


def _middle(drawn: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(low), float(high)
