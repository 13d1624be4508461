"""The result of an evaluation: as a table for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from rlvr.cli.output import table
from rlvr.errors import counted
from rlvr.evaluation.breakdown import Breakdown, Slice

NOTHING = "-"
_HEADER = ("LABEL", "VALUE", "PROBLEMS", "SAMPLES", "PASS@1", "95 % INTERVAL")


def as_json(report: Breakdown, facts: Mapping[str, Any]) -> dict[str, Any]:
    """All numbers: `facts`, those of all problems together, and `by` label and value."""
    return {
        **facts,
        **_numbers(report.whole),
        "by": {
            label: {value: _numbers(part) for value, part in slices.items()}
            for label, slices in report.by.items()
        },
    }


def _numbers(part: Slice) -> dict[str, Any]:
    rates = {str(k): v for k, v in part.pass_at.items()}
    runs = {"run_mean": part.run_mean, "run_std": part.run_std}
    return {**attrs.asdict(part), "pass_at": rates, **runs}


def as_text(report: Breakdown, facts: Mapping[str, Any]) -> str:
    """The table, the line to quote, the cost, and what was left out."""
    whole = report.whole
    if whole.pass1 is None:
        return f"nothing could be verified\n{_counts(report, facts)}"
    rows = [
        _row(label, value, part)
        for label, slices in report.by.items()
        for value, part in slices.items()
    ]
    header = (*_HEADER, "STD OF REPEATS", "TOKENS", "VERIFY S")
    lines = [table(header, [*rows, _row("all", "", whole)]), ""]
    lines.append(_quote(whole, facts["n"]))
    rates = "  ".join(f"pass@{k} {v:.1%}" for k, v in whole.pass_at.items())
    mean = f"{whole.reward_mean:.3f}" if whole.reward_mean is not None else NOTHING
    lines.append(f"{rates}  95 % interval of pass@1 {_interval(whole)}  mean reward {mean}")
    lines.append(cost(whole, facts))
    lines.append(_counts(report, facts))
    return "\n".join(lines)


def cost(whole: Slice, facts: Mapping[str, Any]) -> str:
    """The cost of an evaluation: tokens, seconds of verification, wall-clock time."""
    tokens = "tokens not known" if whole.tokens is None else counted(whole.tokens, "token")
    known = f" ({whole.cached} verdicts from the store)" if whole.cached else ""
    times = [
        f"{facts[key]:.1f} s {doing}"
        for key, doing in (("sample_s", "sampling"), ("judge_s", "judging"))
        if facts.get(key) is not None
    ]
    return "; ".join([tokens, f"{whole.verify_s:.1f} s of verification{known}", *times])


def _row(label: str, value: str, part: Slice) -> tuple[str, ...]:
    return (
        label,
        value,
        str(part.problems),
        str(part.samples),
        NOTHING if part.pass1 is None else f"{part.pass1:.2%}",
        _interval(part),
        NOTHING if part.run_std is None else f"{part.run_std:.2%}",
        _per_sample(part),
        f"{part.verify_s:.2f}",
    )


def _per_sample(part: Slice) -> str:
    """Tokens of a sample, on average over all that were drawn."""
    drawn = part.samples + part.failed
    return NOTHING if part.tokens is None or not drawn else f"{part.tokens / drawn:.0f}"


def _interval(part: Slice) -> str:
    if part.low is None or part.high is None:
        return NOTHING
    return f"[{part.low:.1%}, {part.high:.1%}]"


def _quote(whole: Slice, samples: int) -> str:
    """Mean and spread of the runs: what papers print."""
    if whole.run_std is None:
        return f"pass@1 n={samples}: {whole.run_mean:.2%} (one repeat has no standard deviation)"
    hint = "" if whole.is_whole else "; some lack samples: quote the interval below instead"
    return (
        f"pass@1 n={samples}: {whole.run_mean:.2%} ± {whole.run_std:.2%} "
        f"(mean and standard deviation of {len(whole.runs)} repeats{hint})"
    )


def _counts(report: Breakdown, facts: Mapping[str, Any]) -> str:
    whole = report.whole
    kind = f"{facts['split']} " if facts["split"] else ""
    parts = [f"{counted(whole.problems, f'{kind}problem')}, {counted(whole.samples, 'sample')}"]
    parts.append(f"{whole.failed} not scored")
    if whole.unjudged:
        parts.append(f"{counted(whole.unjudged, 'problem')} without any scored sample")
    if facts["cut"]:
        parts.append(f"{facts['cut']} cut at sampler.max_tokens")
    if facts.get("prompts_cut"):
        parts.append(f"{facts['prompts_cut']} prompts lost their middle, too long for the context")
    if facts.get("missing"):
        as_what = "as wrong" if facts["missing_counts_as"] == "wrong" else "not at all"
        parts.append(f"{counted(facts['missing'], 'missing answer')} counted {as_what}")
    if facts.get("unusable"):
        parts.append(counted(len(facts["unusable"]), "unusable line"))
    if facts.get("surplus"):
        parts.append(f"{counted(facts['surplus'], 'answer')} past --samples left out")
    if facts.get("unsupported"):
        parts.append(f"{counted(len(facts['unsupported']), 'unsupported problem')} left out")
    return "; ".join(parts)
