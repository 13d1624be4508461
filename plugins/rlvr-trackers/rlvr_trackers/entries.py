"""What trackers are given: configuration without secrets, numbers of evaluations, table rows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import fields

from rlvr import EvalReport, Reward, RunInfo, ScoredGroup

_SECRET_NAME = re.compile(
    r"(?:^|[._-])(?:(?:api|access|auth|bearer|client|private|refresh|secret)?_?"
    r"(?:keys?|tokens?|secrets?)|passwords?|passwd|passphrase|pwd|credentials?|auth|"
    r"authorization|headers?|cookies?)$",
    re.IGNORECASE,
)
"""The last word of an option that holds a secret. `sampler.max_tokens` is none: it is a number."""
_SECRET_IN_URL = re.compile(
    r"(?<=://)(?:[^/?#\s]+|[^/?#\s:@]*:(?!\d*[/?#])[^\s@]{1,256}+)(?=@)|"  # a password: a/b
    r"(?<=[?&])(?=[^=?&\s]*?(?:key|token|secret|pass|pwd|auth|cred|sig))([^=?&\s]++=)[^&\s#]+",
    re.IGNORECASE,
)
HIDDEN = "<hidden>"


def public_config(run: RunInfo) -> dict[str, Any]:
    """
    The resolved options by dotted key, and what was run; JSON values only.

    Texts of options whose name ends like a secret's are hidden, and so are user, password and
    keys in URLs.
    """
    named = {f"run.{name}": getattr(run, name) for name in ("plugin", "algo", "model", "steps")}
    return {name: public(name, value) for name, value in {**named, **run.config}.items()}


def public(name: str, value: Any) -> Any:
    """A value as others may see it."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if value and _SECRET_NAME.search(name):
        return HIDDEN
    if isinstance(value, tuple | list):
        return [public(name, one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): public(str(key), one) for key, one in value.items()}
    return without_secrets(_unicode(str(value)))


def without_secrets(text: str) -> str:
    """The text without user, password and keys of URLs, and without secrets of the environment."""
    named = {name: value.strip() for name, value in os.environ.items() if _SECRET_NAME.search(name)}
    named.pop("PWD", None)  # the working folder
    for secret in sorted(named.values(), key=len, reverse=True):
        if len(secret) > 7:  # a shorter one may be a word of the text: "mlflow"
            text = text.replace(secret, HIDDEN)
    return _SECRET_IN_URL.sub(lambda found: (found[1] or "") + HIDDEN, text)


def evaluation_numbers(report: EvalReport) -> dict[str, float]:
    """
    The numbers of an evaluation, named as in `eval.jsonl` after `eval/`.

    `eval/pass1` between `eval/low` and `eval/high` by step is the pass rate's curve. Recorded
    trajectories have no pass rate, only what the loss came to.
    """
    if report.measures:
        return {**report.measures, "eval/seconds": round(report.seconds, 3)}
    numbers = {
        "pass1": report.pass1,
        **{name: getattr(report, name) for name in ("low", "high", "reward_mean")},
        **{name: float(getattr(report, name)) for name in ("samples", "failed")},
        "seconds": round(report.seconds, 3),
        **{f"pass_at/{k}": value for k, value in report.pass_at.items()},
        **({} if report.held_out is None else {"held_out": float(report.held_out)}),
    }
    return {f"eval/{name}": value for name, value in numbers.items()}


def recorded(run: Path) -> list[tuple[int, str, dict[str, float]]]:
    """Step, kind of entry and numbers of what a run directory holds, as they came about."""
    found = [(line.pop("step"), "metrics", line) for line in _lines(run / "metrics.jsonl")]
    names = [field.name for field in fields(EvalReport)]
    for line in _lines(run / "eval.jsonl"):
        facts = {name: line[name] for name in names if name in line}
        facts["pass_at"] = {int(k): value for k, value in line["pass_at"].items()}
        found.append((line["step"], "evaluation", evaluation_numbers(EvalReport(**facts))))
    return sorted(found, key=lambda entry: entry[0])  # stable: metrics of a step come first


def _lines(file: Path) -> list[dict[str, Any]]:
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def table_rows(groups: Sequence[ScoredGroup], *, most: int, chars: int) -> list[dict[str, Any]]:
    """At most `most` trajectories, evenly spread over those of the step, one row each."""
    every = [
        (group.problem.id, trajectory, outcome)
        for group in groups
        for trajectory, outcome in zip(group.trajectories, group.outcomes, strict=True)
    ]
    count = min(most, len(every))
    rows = []
    for number in range(count):
        problem, trajectory, outcome = every[number * len(every) // count]
        reward = outcome if isinstance(outcome, Reward) else None
        texts = {"prompt": "", "answer": ""}
        for segment in trajectory.segments:
            begun = bool(texts["answer"]) or segment.author != "prompt"
            texts["answer" if begun else "prompt"] += segment.text
        rows.append(
            {
                "problem": problem,
                "index": trajectory.index,
                **{name: _short(text, chars) for name, text in texts.items()},
                "reward": reward and reward.value,
                "score01": reward and reward.score01,
                "outcome": type(outcome).__name__.lower(),
                "finish": trajectory.finish,
                "tokens": int(trajectory.mask.sum()),
            }
        )
    return rows


def _unicode(text: str) -> str:
    """The text with `?` for halves of a surrogate pair, which UTF-8 cannot hold."""
    return text.encode(errors="replace").decode()


def _short(text: str, chars: int) -> str:
    text = _unicode(text)
    return text if len(text) <= chars else f"{text[:chars]} [{len(text) - chars} more characters]"
