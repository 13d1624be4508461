"""Held-out or not: compare the families of evaluated problems with those trained on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
from attrs import frozen

from rlvr.errors import counted
from rlvr.evaluation.pass_at_k import report_of
from rlvr.records.lineage import Lineage, families_of
from rlvr.types import EvalReport, Problem, ScoredGroup

NAMED = 6
"""Families that a sentence names; further ones are counted."""
LABEL = "let the task yield Problem(labels={'family': ...})"
"""How to know it next time, for an author."""


@frozen(kw_only=True)
class HeldOut:
    """
    Whether a set of problems is held-out for a model.

    Attributes:
        verdict: True, False, or None where it is not known.
        seen: Ids of the problems whose family the model was trained on.
        shared: Those families.
        lineage: What the model was trained on.
        total: Number of problems asked about.
    """

    verdict: bool | None
    seen: tuple[str, ...]
    shared: tuple[str, ...]
    lineage: Lineage
    total: int


def held_out(problems: Iterable[Problem], lineage: Lineage) -> HeldOut:
    """Compare problems with a lineage; never True where a label or a record is missing."""
    problems, families = tuple(problems), set(lineage.families)
    seen = [p for p in problems if p.labels.get("family") in families]
    was_trained = bool(lineage.source or lineage.families)
    is_known = lineage.is_complete and (
        not was_trained or all(p.labels.get("family") for p in problems)
    )
    return HeldOut(
        verdict=False if seen else (True if is_known else None),
        seen=tuple(p.id for p in seen),
        shared=families_of(seen),
        lineage=lineage,
        total=len(problems),
    )


def marked(report: EvalReport, problems: Iterable[Problem], lineage: Lineage) -> EvalReport:
    """The report with whether it is held-out, and which of its problems are not."""
    found = held_out(problems, lineage)
    return attrs.evolve(report, seen=found.seen, held_out=found.verdict)


def facts(found: HeldOut, scored: Sequence[ScoredGroup]) -> dict[str, Any]:
    """The keys of a result: `held_out`, `seen`, and the score of the `unseen` part where mixed."""
    told: dict[str, Any] = {"held_out": found.verdict, "seen": list(found.seen)}
    unseen = [group for group in scored if group.problem.id not in set(found.seen)]
    if found.seen and unseen:
        report = report_of(unseen, split="", seconds=0.0)
        told["unseen"] = {
            "problems": len(report.scores),
            "samples": report.samples,
            "pass_at": {str(k): v for k, v in report.pass_at.items()},
            "low": report.low,
            "high": report.high,
        }
    return told


def sentence(found: HeldOut, told: Mapping[str, Any]) -> str:
    """Sentence for a person: held-out or not, and the score of the unseen part."""
    lineage, shared = found.lineage, found.shared
    if found.verdict is None:
        why = f"some of these problems name no family; {LABEL}"
        if not lineage.is_complete:
            why = f"{lineage.source} does not name all families that the model was trained on"
            why += f"; {LABEL}, then train again"
            why = why if lineage.source else "what gave these answers is not recorded"
        return f"held-out: unknown: {why}"
    if found.verdict and not lineage.source:
        return "held-out: yes, as far as rlvr knows: no run of it trained this model"
    if found.verdict:
        known = len(lineage.families)
        return f"held-out: yes: no problem is of the {known} families that the model was trained on"
    named = ", ".join(shared[:NAMED])
    more = f" and {len(shared) - NAMED} more" if len(shared) > NAMED else ""
    text = (
        f"NOT held-out: {len(found.seen)} of {counted(found.total, 'problem')} are of families "
        f"that this model was trained on: {named}{more}"
    )
    if (part := told.get("unseen")) is None:
        return text
    return (
        f"{text}\nunseen part: pass@1 {part['pass_at'].get('1', 0.0):.1%}  95 % interval "
        f"[{part['low']:.1%}, {part['high']:.1%}]  {counted(part['problems'], 'problem')}"
    )


def recorded_sentence(told: Mapping[str, Any]) -> str:
    """The same sentence for an evaluation that is read from a file."""
    said = {None: "not known", True: "yes", False: "NO"}[told.get("held_out")]
    return f"held-out, as it was evaluated: {said}"
