"""Compare two evaluations on the problems that both have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
from attrs import frozen

from rlvr.errors import ConfigError
from rlvr.evaluation.breakdown import kinds_of
from rlvr.evaluation.paired_test import Paired, Verdicts, paired
from rlvr.types import Problem, ScoredGroup


@frozen(kw_only=True)
class Comparison:
    """
    One evaluation against another.

    Attributes:
        whole: Over all problems that both have.
        by: The same by label, then value; without values that no shared problem has.
        only_this: Ids of problems that only the one has.
        only_against: Ids of those that only the other has.
        changed: Ids that both have and whose problems differ; in no number.
        unjudged: Ids that both have and one has no judged sample of; in no number.
    """

    whole: Paired
    by: Mapping[str, Mapping[str, Paired]]
    only_this: tuple[str, ...] = ()
    only_against: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()


def compare(
    this: Sequence[ScoredGroup], against: Sequence[ScoredGroup], crossed: Sequence[str] = ()
) -> Comparison:
    """
    Compare two evaluations problem by problem.

    A problem is the same where id and digest are; an evaluation that tells no digest is believed.

    Args:
        this: The groups of the one.
        against: The groups of the other.
        crossed: Labels that are sliced by together as well.

    Raises:
        ConfigError: They have no problem in common that both have a judged sample of.
        UnknownNameError: No problem has one of the crossed labels.
    """
    ours, theirs = _by_id(this), _by_id(against)
    shared = [name for name in ours if name in theirs]
    changed = [name for name in shared if _differ(ours[name].problem, theirs[name].problem)]
    same = [name for name in shared if name not in set(changed)]
    judged = [name for name in same if ours[name].rewards and theirs[name].rewards]
    if not judged:
        raise ConfigError(
            "two evaluations were to be compared problem by problem.",
            f"found: {len(ours)} problems here and {len(theirs)} there, {len(shared)} with the "
            f"same id, {len(same)} of those unchanged, and 0 judged on both sides",
            "evaluate both on the same --dataset and --split",
        )
    problems = [_labelled(ours[name].problem, theirs[name].problem) for name in judged]
    verdicts = _verdicts(ours), _verdicts(theirs)
    return Comparison(
        whole=_of(problems, verdicts),
        by={
            label: {value: _of(found, verdicts) for value, found in kinds.items()}
            for label, kinds in kinds_of(problems, crossed).items()
        },
        only_this=tuple(name for name in ours if name not in theirs),
        only_against=tuple(name for name in theirs if name not in ours),
        changed=tuple(changed),
        unjudged=tuple(name for name in same if name not in set(judged)),
    )


def _by_id(groups: Sequence[ScoredGroup]) -> dict[str, ScoredGroup]:
    return {group.problem.id: group for group in groups}


def _differ(one: Problem, other: Problem) -> bool:
    return bool(one.digest and other.digest) and one.digest != other.digest


def _labelled(one: Problem, other: Problem) -> Problem:
    """The problem with the labels of both; trajectories of a run hold none."""
    return attrs.evolve(one, labels={**other.labels, **one.labels})


def _verdicts(groups: Mapping[str, ScoredGroup]) -> Verdicts:
    return {name: [r.score01 == 1.0 for r in group.rewards] for name, group in groups.items()}


def _of(problems: Sequence[Problem], verdicts: tuple[Verdicts, Verdicts]) -> Paired:
    this, against = verdicts
    return paired({p.id: this[p.id] for p in problems}, against)
