"""Results of an evaluation, overall and by label: pass@k, its interval, spread, cost."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from attrs import frozen

from rlvr.config.describe import as_text
from rlvr.errors import UnknownNameError
from rlvr.evaluation.pass_at_k import KS, interval_of, pass_at
from rlvr.suggest import did_you_mean
from rlvr.types import Problem, Reward, ScoredGroup

MOST_VALUES = 20
LEFT_OUT = frozenset({"id", "family"})
"""Labels that name problems rather than kinds of problems."""


@frozen(kw_only=True)
class Slice:
    """
    Results for the problems of one kind.

    Attributes:
        problems: Problems that have at least one judged sample.
        samples: Judged samples.
        right: Judged samples with a score01 of exactly 1.
        failed: Samples without a verdict; in no other number.
        unjudged: Problems none of whose samples has a verdict; in no other number.
        pass_at: k to the unbiased estimate of pass@k, for k up to the fewest judged samples of a
            problem.
        low: Lower end of the 95 % interval of pass@1 (bootstrap over problems); None where nothing
            was judged.
        high: Its upper end.
        runs: Pass rate of each run; run i is sample i of every problem.
        reward_mean: Mean reward of the judged samples.
        components: Mean of each component of the reward, over the samples that have it.
        tokens: Tokens that the model wrote, over all samples; None where no sample tells its own
            (a server's, a file's answers).
        verify_s: Seconds of verification, added over workers; what the store knew costs nothing.
        cached: Verdicts that came from the store.
    """

    problems: int
    samples: int
    right: int
    failed: int
    unjudged: int
    pass_at: Mapping[int, float]
    low: float | None
    high: float | None
    runs: tuple[float, ...]
    reward_mean: float | None
    components: Mapping[str, float]
    tokens: int | None = None
    verify_s: float = 0.0
    cached: int = 0

    @property
    def pass1(self) -> float | None:
        """Share of right samples, averaged over problems; None where nothing was judged."""
        return self.pass_at.get(1)

    @property
    def is_whole(self) -> bool:
        """True where every problem has a judged sample in every run."""
        return not self.unjudged and self.samples == self.problems * len(self.runs)

    @property
    def run_mean(self) -> float | None:
        """Mean of the runs' pass rates: pass@1, where every sample was judged."""
        return statistics.mean(self.runs) if self.runs else None

    @property
    def run_std(self) -> float | None:
        """Sample standard deviation (n - 1) of the runs' pass rates; None for a single run."""
        return statistics.stdev(self.runs) if len(self.runs) > 1 else None


@frozen(kw_only=True)
class Breakdown:
    """All problems together, and by label: label, then value, to its slice."""

    whole: Slice
    by: Mapping[str, Mapping[str, Slice]]


def breakdown(scored: Sequence[ScoredGroup], crossed: Sequence[str] = ()) -> Breakdown:
    """
    Slice an evaluation by every label that groups its problems.

    A label counts when it has 1 to 20 different values and does not name single problems
    (`id`, `family`). Problems without the label are in no slice of it.

    Args:
        scored: The evaluated groups.
        crossed: Labels to slice by together as well, whatever they are: both their names and
            their values are joined by commas (a JSON list where one has a comma).

    Raises:
        UnknownNameError: No problem has one of the crossed labels.
    """
    by_id = {group.problem.id: group for group in scored}
    return Breakdown(
        whole=_slice(scored),
        by={
            label: {v: _slice([by_id[p.id] for p in kinds[v]]) for v in kinds}
            for label, kinds in kinds_of([g.problem for g in scored], crossed).items()
        },
    )


def kinds_of(
    problems: Sequence[Problem], crossed: Sequence[str] = ()
) -> dict[str, dict[str, list[Problem]]]:
    """
    The problems of each kind: label, then value in order, to the problems that have it.

    Raises:
        UnknownNameError: No problem has one of the crossed labels.
    """
    labels = check_labels(problems, crossed)
    by: dict[str, dict[str, list[Problem]]] = {}
    for label in sorted(labels - LEFT_OUT):
        kinds = _kinds(problems, [label])
        if 1 <= len(kinds) <= MOST_VALUES:
            by[label] = kinds
    if crossed:
        by[_together(crossed)] = _kinds(problems, crossed)
    return by


def check_labels(problems: Iterable[Problem], wanted: Sequence[str]) -> set[str]:
    """
    All labels of the problems.

    Raises:
        UnknownNameError: None of them has one of the wanted labels.
    """
    labels = {key for problem in problems for key in problem.labels}
    if unknown := [label for label in wanted if label not in labels]:
        raise UnknownNameError(
            f"a breakdown by '{unknown[0]}' was asked for.",
            f"the problems' labels: {', '.join(sorted(labels)) or 'none'}",
            did_you_mean(unknown[0], labels),
        )
    return labels


def _kinds(problems: Sequence[Problem], labels: Sequence[str]) -> dict[str, list[Problem]]:
    kinds: dict[str, list[Problem]] = {}
    for problem in problems:
        values = [problem.labels.get(label, "") for label in labels]
        if all(values):
            kinds.setdefault(_together(values), []).append(problem)
    return {value: kinds[value] for value in sorted(kinds)}


def _together(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else as_text(tuple(names))


def _slice(groups: Sequence[ScoredGroup]) -> Slice:
    scores = {g.problem.id: [r.score01 for r in g.rewards] for g in groups if g.rewards}
    rewards = [r for g in groups for r in g.rewards]
    fewest = min((len(s) for s in scores.values()), default=0)
    low, high = interval_of(scores) if scores else (None, None)
    components: dict[str, list[float]] = {}
    for reward in rewards:
        for name, value in reward.components.items():
            components.setdefault(name, []).append(value)
    tokens = [int(t.mask.sum()) for g in groups for t in g.trajectories]
    return Slice(
        problems=len(scores),
        samples=len(rewards),
        right=sum(r.score01 == 1.0 for r in rewards),
        failed=sum(len(g.outcomes) - len(g.rewards) for g in groups),
        unjudged=sum(not g.rewards for g in groups),
        pass_at={k: pass_at(scores, k) for k in sorted({*KS, fewest}) if 0 < k <= fewest},
        low=low,
        high=high,
        runs=_runs(groups),
        reward_mean=float(np.mean([r.value for r in rewards])) if rewards else None,
        components={name: float(np.mean(components[name])) for name in sorted(components)},
        tokens=sum(tokens) if any(tokens) else None,
        verify_s=sum(r.cost_s for r in rewards),
        cached=sum(r.cached for r in rewards),
    )


def _runs(groups: Sequence[ScoredGroup]) -> tuple[float, ...]:
    """Pass rate of the i-th samples, for each i that has a judged one."""
    rates = []
    for index in range(max((len(g.outcomes) for g in groups), default=0)):
        judged = [g.outcomes[index] for g in groups if index < len(g.outcomes)]
        right = [o.score01 == 1.0 for o in judged if isinstance(o, Reward)]
        if right:
            rates.append(sum(right) / len(right))
    return tuple(rates)
