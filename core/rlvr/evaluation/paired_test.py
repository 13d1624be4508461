"""Paired comparison of two models on the same problems, with a test against chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb

from attrs import frozen

from rlvr.evaluation.pass_at_k import interval

Verdicts = Mapping[str, Sequence[bool]]
"""Problem id to whether each judged sample is right, in the order of sampling."""

DRAWS = 10_000


@frozen(kw_only=True)
class Paired:
    """
    One model against another, over the problems that both have a judged sample of.

    Attributes:
        problems: Number of those problems.
        this: pass@1 of the one: share of right samples, averaged over problems.
        against: That of the other.
        low: Lower end of the 95 % interval of the difference; None below two problems.
        high: Its upper end.
        both: Problems that both solve (see `solves`).
        only_this: Problems that only the one solves.
        only_against: Problems that only the other one solves.
        neither: Problems that none solves.
        p_value: McNemar's, exact and two-sided, of `only_this` against `only_against`.
    """

    problems: int
    this: float
    against: float
    low: float | None
    high: float | None
    both: int
    only_this: int
    only_against: int
    neither: int
    p_value: float

    @property
    def difference(self) -> float:
        """pass@1 of the one minus that of the other."""
        return self.this - self.against


def paired(this: Verdicts, against: Verdicts) -> Paired:
    """
    Compare two models on the problems that both have a judged sample of.

    The interval redraws problems with all their samples (a paired bootstrap over clusters), so
    how hard a problem is, which both models share, leaves the difference.

    Raises:
        ValueError: There is no such problem.
    """
    shared = [name for name, samples in this.items() if samples and against.get(name)]
    if not shared:
        raise ValueError("no problem has a judged sample of both models")
    rates = [(_rate(this[name]), _rate(against[name])) for name in shared]
    low, high = interval([one - other for one, other in rates], draws=DRAWS)
    solved = [_solved(this[name], against[name]) for name in shared]
    only_this, only_against = solved.count((True, False)), solved.count((False, True))
    return Paired(
        problems=len(shared),
        this=sum(one for one, _ in rates) / len(rates),
        against=sum(other for _, other in rates) / len(rates),
        low=low if len(shared) > 1 else None,
        high=high if len(shared) > 1 else None,
        both=solved.count((True, True)),
        only_this=only_this,
        only_against=only_against,
        neither=solved.count((False, False)),
        p_value=mcnemar(only_this, only_against),
    )


def solves(samples: Sequence[bool]) -> bool:
    """Whether more than half of a problem's samples are right; exactly half is not enough."""
    return 2 * sum(samples) > len(samples)


def mcnemar(only_this: int, only_against: int) -> float:
    """
    Exact two-sided p-value: were the models equal, each of these problems would be a coin toss.

    Twice the binomial tail of the rarer side, at most 1. Source: McNemar 1947; exact form as in
    Fagerland et al. 2013, doi:10.1186/1471-2288-13-91.
    """
    tosses, rarer = only_this + only_against, min(only_this, only_against)
    tail = sum(comb(tosses, count) for count in range(rarer + 1))
    return min(1.0, 2 * tail / (1 << tosses))


def _rate(samples: Sequence[bool]) -> float:
    return sum(samples) / len(samples)


def _solved(this: Sequence[bool], against: Sequence[bool]) -> tuple[bool, bool]:
    # As many samples of each: a majority of five is not solved as often as one sample is, so
    # that equal models would not toss a fair coin.
    count = min(len(this), len(against))
    return solves(this[:count]), solves(against[:count])
