"""pass@k of a policy: sample answers, judge them, estimate the rate and its interval."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import comb

import numpy as np

from rlvr.parts import Policy, Sampler, Task
from rlvr.rollouts.group import scored_groups
from rlvr.types import EvalReport, Problem, Reward, SamplingParams, ScoredGroup
from rlvr.verification.runner import VerificationRunner

KS = (1, 2, 4, 8, 16, 32, 64)
"""Values of k for which pass@k is reported, as far as there are samples."""
_REDRAWN_AT_ONCE = 1 << 20


async def evaluate(
    policy: Policy,
    task: Task,
    sampler: Sampler,
    runner: VerificationRunner,
    problems: Sequence[Problem],
    params: SamplingParams,
    *,
    split: str,
) -> tuple[EvalReport, list[ScoredGroup]]:
    """
    Sample `params.group_size` answers a problem, judge them, and estimate pass@k.

    Samples whose verification could not run (or has no verdict) are left out of the estimate and
    counted in `failed`.
    """
    begun = time.monotonic()
    scored = await scored_groups(sampler, policy, task, problems, params, runner)
    runner.check_failures([o for group in scored for o in group.outcomes])
    return report_of(scored, split=split, seconds=time.monotonic() - begun), scored


def report_of(scored: Sequence[ScoredGroup], *, split: str, seconds: float) -> EvalReport:
    """The report of groups that are scored already."""
    scores = {g.problem.id: tuple(r.score01 for r in g.rewards) for g in scored}
    values = [r.value for g in scored for r in g.rewards]
    fewest = min((len(s) for s in scores.values() if s), default=0)
    low, high = interval_of({p: s for p, s in scores.items() if s})
    return EvalReport(
        split=split,
        scores=scores,
        pass_at={k: pass_at(scores, k) for k in KS if k <= fewest},
        low=low,
        high=high,
        reward_mean=float(np.mean(values)) if values else 0.0,
        samples=sum(len(s) for s in scores.values()),
        failed=sum(not isinstance(o, Reward) for g in scored for o in g.outcomes),
        seconds=seconds,
    )


def pass_at(scores: Mapping[str, Sequence[float]], k: int) -> float:
    """
    Unbiased pass@k, averaged over problems: 1 - C(n - c, k) / C(n, k).

    n samples of which c are right (score01 of exactly 1); problems with fewer than k samples are
    left out. Source: Chen et al. 2021, arXiv:2107.03374.
    """
    estimates = []
    for samples in scores.values():
        n, c = len(samples), sum(score == 1.0 for score in samples)
        if n >= k:
            estimates.append(1.0 - comb(n - c, k) / comb(n, k))
    return float(np.mean(estimates)) if estimates else 0.0


def interval(
    per_problem: Sequence[float], *, least: float = 0.0, most: float = 1.0, draws: int = 2000
) -> tuple[float, float]:
    """
    95 % percentile bootstrap interval of the mean, problems being the unit that is redrawn.

    Where n problems all have one value, redrawing them says nothing. Then at most a share u of
    all problems has another, (1 - u)^n = 2.5 %, and it may be `least` or `most`: for 0 of n that is
    Clopper and Pearson's interval.
    """
    if not per_problem:
        return 0.0, 0.0
    values = np.asarray(per_problem)
    if np.ptp(values) < 1e-9:  # as 1 - 2/3 and 1/3 - 0 are one value
        others = 1 - 0.025 ** (1 / len(values))
        same = (1 - others) * float(values[0])
        return same + others * least, same + others * most
    rng = np.random.default_rng(0)
    at_once = max(1, _REDRAWN_AT_ONCE // len(values))  # bounds the memory of many problems
    means = [
        rng.choice(values, size=(min(at_once, draws - done), len(values))).mean(axis=1)
        for done in range(0, draws, at_once)
    ]
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    return float(low), float(high)


def interval_of(scores: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """95 % interval of pass@1 (bootstrap over problems)."""
    return interval([_share(samples) for samples in scores.values()])


def _share(samples: Sequence[float]) -> float:
    return float(np.mean([score == 1.0 for score in samples]))


def gain(before: EvalReport, after: EvalReport) -> tuple[float, float, float]:
    """Difference of pass@1 with its 95 % interval, paired by problem: (gain, low, high)."""
    differences = [
        _share(after.scores[p]) - _share(samples)
        for p, samples in before.scores.items()
        if samples and after.scores.get(p)
    ]
    low, high = interval(differences, least=-1.0)
    return float(np.mean(differences)) if differences else 0.0, low, high
