"""Compare two models on the problems that both answered, with a test against chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from typing import Any

import attrs
from attrs import field, frozen

from rlvr.errors import ConfigError
from rlvr.evaluation.breakdown import Breakdown, kinds_of
from rlvr.evaluation.pass_at_k import interval
from rlvr.types import Metric, Problem, ScoredGroup

__all__ = ["Evaluation"]

Verdicts = Mapping[str, Sequence[bool]]
"""Problem id to whether each judged sample is right, in the order of sampling."""

DRAWS = 10_000


@frozen(kw_only=True)
class Paired:
    """
    One model against another, over the problems that both have a judged sample of.

    Attributes:
        problems: Number of those problems.
        this: pass@1 of the first model: share of right samples, averaged over problems.
        against: pass@1 of the second model.
        low: Lower end of the 95 % interval of the difference.
        high: Its upper end.
        both: Problems that both solve (see `solves`).
        only_this: Problems that only the first model solves.
        only_against: Problems that only the second model solves.
        neither: Problems that none solves.
        p_value: McNemar's, exact and two-sided, of `only_this` against `only_against`.
    """

    problems: int
    this: float
    against: float
    low: float
    high: float
    both: int
    only_this: int
    only_against: int
    neither: int
    p_value: float

    @property
    def difference(self) -> float:
        """pass@1 of the first model minus that of the second."""
        return self.this - self.against


def paired(this: Verdicts, against: Verdicts) -> Paired:
    """
    Compare two models on the problems that both have a judged sample of.

    The interval redraws problems with all their samples (a paired bootstrap over clusters): both
    models share how hard a problem is, so that this does not widen the interval.

    Raises:
        ValueError: There is no such problem.
    """
    shared = [name for name, samples in this.items() if samples and against.get(name)]
    if not shared:
        raise ValueError("no problem has a judged sample of both models")
    rates = [(_rate(this[name]), _rate(against[name])) for name in shared]
    low, high = interval([one - other for one, other in rates], least=-1.0, draws=DRAWS)
    solved = [_solved(this[name], against[name]) for name in shared]
    only_this, only_against = solved.count((True, False)), solved.count((False, True))
    return Paired(
        problems=len(shared),
        this=_rate([one for one, _ in rates]),
        against=_rate([other for _, other in rates]),
        low=low,
        high=high,
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


def _rate(samples: Sequence[float]) -> float:
    return sum(samples) / len(samples)


def _solved(this: Sequence[bool], against: Sequence[bool]) -> tuple[bool, bool]:
    # As many samples of each: a majority of five is not solved as often as one sample is, so
    # that equal models would not toss a fair coin.
    count = min(len(this), len(against))
    return solves(this[:count]), solves(against[:count])


@frozen(kw_only=True)
class Comparison:
    """
    One evaluation against another.

    Attributes:
        whole: Over all problems that both have.
        by: The same by label, then value; without values that no shared problem has.
        only_this: Ids of problems that only the first evaluation has.
        only_against: Ids of problems that only the second one has.
        changed: Ids that both have, of problems that differ; in no number.
        unjudged: Ids that both have, without a judged sample in one of them; in no number.
    """

    whole: Paired
    by: Mapping[str, Mapping[str, Paired]]
    only_this: tuple[str, ...] = ()
    only_against: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()


@frozen(kw_only=True)
class Evaluation:
    """
    Pass rates of a model, or of a file of answers.

    Attributes:
        report: Overall (`report.whole`) and by label (`report.by`). Verifications that could not
            run are in `report.whole.failed` and in no other number.
        facts: Model, split, samples a problem, seconds, and what was left out.
        groups: Every sample with its verdict, one group a problem.
        figures: What the task measures besides.
        against: The other side, where one was asked for.
        comparison: This side and the other one problem by problem, with the difference of their
            pass@1 and its interval (`comparison.whole`).
    """

    report: Breakdown
    facts: Mapping[str, Any]
    groups: Sequence[ScoredGroup] = field(repr=False)
    figures: Sequence[Metric] = ()
    against: Evaluation | None = None
    comparison: Comparison | None = None

    @property
    def pass1(self) -> float | None:
        """Share of right samples, averaged over problems; None where nothing was judged."""
        return self.report.whole.pass1

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The 95 % interval of `pass1` (bootstrap over problems)."""
        return self.report.whole.low, self.report.whole.high


def compare(
    this: Sequence[ScoredGroup], against: Sequence[ScoredGroup], crossed: Sequence[str] = ()
) -> Comparison:
    """
    Compare two evaluations problem by problem.

    Problems are the same if id and digest are equal; without digests the id is enough.

    Args:
        this: The groups of the first evaluation.
        against: The groups of the second one.
        crossed: Labels to slice by together as well.

    Raises:
        ConfigError: They have no problem in common that both have a judged sample of.
        UnknownNameError: No problem has one of the crossed labels.
    """
    ours, theirs = ({group.problem.id: group for group in groups} for groups in (this, against))
    shared = [name for name in ours if name in theirs]
    digests = {name: (ours[name].problem.digest, theirs[name].problem.digest) for name in shared}
    changed = [name for name, (one, other) in digests.items() if one and other and one != other]
    same = [name for name in shared if name not in set(changed)]
    judged = [name for name in same if ours[name].rewards and theirs[name].rewards]
    if not judged:
        raise ConfigError(
            "two evaluations were to be compared problem by problem.",
            f"found: {len(ours)} problems here and {len(theirs)} there, {len(shared)} with the "
            f"same id, {len(same)} of those unchanged, and 0 judged on both sides",
            "evaluate both on the same --dataset and --split",
        )
    problems = [  # trajectories of a run hold no labels
        attrs.evolve(one, labels={**other.labels, **one.labels})
        for one, other in ((ours[name].problem, theirs[name].problem) for name in judged)
    ]
    our_verdicts, their_verdicts = (
        {name: [r.score01 == 1.0 for r in group.rewards] for name, group in groups.items()}
        for groups in (ours, theirs)
    )

    def on(problems: Sequence[Problem]) -> Paired:
        return paired({p.id: our_verdicts[p.id] for p in problems}, their_verdicts)

    return Comparison(
        whole=on(problems),
        by={
            label: {value: on(found) for value, found in kinds.items()}
            for label, kinds in kinds_of(problems, crossed).items()
        },
        only_this=tuple(name for name in ours if name not in theirs),
        only_against=tuple(name for name in theirs if name not in ours),
        changed=tuple(changed),
        unjudged=tuple(name for name in same if name not in set(judged)),
    )
