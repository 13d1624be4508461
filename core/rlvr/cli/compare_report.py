"""Two evaluations of the same problems: as a table for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from rlvr.cli.eval_report import cost
from rlvr.cli.output import table
from rlvr.errors import counted
from rlvr.evaluation.breakdown import Slice
from rlvr.evaluation.compare_models import Comparison, Paired

Side = tuple[Slice, Mapping[str, Any]]
"""One evaluation: its numbers over all problems, and its facts."""

NAMED = 6
"""Problems that a line names before it counts the others."""
HEADER = (
    "LABEL", "VALUE", "PROBLEMS", "THIS", "AGAINST", "DIFFERENCE", "95 % INTERVAL",
    "ONLY THIS", "ONLY AGAINST", "MCNEMAR P",
)  # fmt: skip


def comparison_as_json(found: Comparison) -> dict[str, Any]:
    """All numbers, over all problems and `by` label and value, and what was left out."""
    left_out = ("only_this", "only_against", "changed", "unjudged")
    return {
        **paired_as_json(found.whole),
        "by": {
            label: {value: paired_as_json(part) for value, part in parts.items()}
            for label, parts in found.by.items()
        },
        "left_out": {name: list(getattr(found, name)) for name in left_out},
    }


def paired_as_json(part: Paired) -> dict[str, Any]:
    """The numbers of one set of problems."""
    return {**attrs.asdict(part), "difference": part.difference}


def comparison_as_text(found: Comparison, this: Side, against: Side) -> str:
    """The table, the sentence to quote, the cost of both, and what is in no number."""
    rows = [
        _row(label, value, part)
        for label, parts in found.by.items()
        for value, part in parts.items()
    ]
    lines = [
        f"this:    {_name(this[1])}",
        f"against: {_name(against[1])}",
        table(HEADER, [*rows, _row("all", "", found.whole)]),
        "",
        verdict(found.whole),
        f"this:    {cost(*this)}",
        f"against: {cost(*against)}",
    ]
    splits = [str(side[1].get("split") or "") for side in (this, against)]
    if all(splits) and splits[0] != splits[1]:
        lines.append(f"splits differ: {splits[0]} here, {splits[1]} there; compared by problem id")
    return "\n".join([*lines, *_left_out(found)])


def verdict(part: Paired) -> str:
    """The sentence to quote: the difference with its interval, and the test."""
    return (
        f"difference of pass@1: {100 * part.difference:+.1f} points, "
        f"95 % [{100 * part.low:+.1f}, {100 * part.high:+.1f}] "
        f"(paired bootstrap over {counted(part.problems, 'problem')})\n"
        f"solved by most samples: {part.only_this} only by this, {part.only_against} only by the "
        f"other, {part.both} by both; McNemar p = {part.p_value:.3g} (exact, two-sided)"
    )


def _row(label: str, value: str, part: Paired) -> tuple[str, ...]:
    return (
        label,
        value,
        str(part.problems),
        f"{part.this:.2%}",
        f"{part.against:.2%}",
        f"{100 * part.difference:+.1f}",
        f"[{100 * part.low:+.1f}, {100 * part.high:+.1f}]",
        str(part.only_this),
        str(part.only_against),
        f"{part.p_value:.3g}",
    )


def _name(facts: Mapping[str, Any]) -> str:
    evaluated = facts.get("evaluated")
    return f"{facts['model']} ({evaluated})" if evaluated else str(facts["model"])


def _left_out(found: Comparison) -> list[str]:
    said = {
        "only this evaluation has": found.only_this,
        "only the other has": found.only_against,
        "differ (another text, test or limit under the same id)": found.changed,
        "have a judged sample on one side at most": found.unjudged,
    }
    return [f"not compared: {_named(names)} {why}" for why, names in said.items() if names]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{counted(len(names), 'problem')} ({', '.join(names[:NAMED])}{more}) that"
