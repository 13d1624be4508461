"""Saved evaluations: each sample with its verdict, so that nothing is sampled or judged twice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from rlvr.errors import ConfigError, UnknownNameError
from rlvr.records.json_lines import objects
from rlvr.records.trajectories import trajectory_from_json, trajectory_records
from rlvr.types import Failed, Outcome, Problem, ScoredGroup, Trajectory
from rlvr.verification.verdict import fault_of_outcome, outcome_from_json


@frozen(kw_only=True)
class Judged:
    """
    An evaluation that was read from a file.

    Attributes:
        groups: One a problem, in the order of the file. Their problems have an id, a split, labels
            and a digest, as far as the file says them, and no prompt.
        facts: What the file says of the evaluation: `model`, `split`, `sample_s`, `judge_s`,
            `held_out`; {} for the trajectories of a run.
        unusable: What is wrong with the lines that are no judged sample.
    """

    groups: tuple[ScoredGroup, ...]
    facts: Mapping[str, Any]
    unusable: tuple[str, ...] = ()


def judged_lines(scored: Sequence[ScoredGroup], facts: Mapping[str, Any]) -> Iterable[str]:
    """The lines of `rlvr eval --out`: a trajectory, its verdict, its problem, its evaluation."""
    for group in scored:
        problem = {"labels": dict(group.problem.labels), "digest": group.problem.digest}
        for record in trajectory_records(group, 0):
            yield json.dumps({**record, **problem, "evaluation": dict(facts)}) + "\n"


def holds_verdicts(path: Path) -> bool:
    """Whether the first object of a JSON Lines file is a sample with its verdict."""
    found = (record for _, record, fault in objects(_content(path)) if not fault)
    return isinstance(next(found, {}).get("outcome"), dict)


def read_judged(path: Path) -> Judged:
    """
    Read a file of `rlvr eval --out`, or `trajectories/eval-NNNNNN.jsonl` of a run.

    Raises:
        UnknownNameError: There is no such file.
        ConfigError: It holds no judged sample.
    """
    samples: dict[str, list[tuple[Problem, Trajectory, Outcome]]] = {}
    facts: Mapping[str, Any] = {}
    unusable = []
    for number, record, fault in objects(_content(path)):
        if fault:
            unusable.append(f"line {number} is no sample with its verdict: it {fault}")
            continue
        try:
            trajectory, outcome = trajectory_from_json(record), _outcome(record["outcome"])
            problem = _problem(record)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            unusable.append(f"line {number} is no sample with its verdict: {error!r}")
            continue
        samples.setdefault(problem.id, []).append((problem, trajectory, outcome))
        facts = facts or _facts(record)
    if not samples:
        raise ConfigError(
            f"an evaluation was to be read from {path}.",
            "found: no sample with its verdict",
            "name a file that rlvr eval --out wrote; answers go to --completions",
        )
    return Judged(
        groups=tuple(
            ScoredGroup(
                problem=found[0][0],
                trajectories=[trajectory for _, trajectory, _ in found],
                outcomes=[outcome for *_, outcome in found],
            )
            for found in samples.values()
        ),
        facts=facts,
        unusable=tuple(unusable),
    )


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise UnknownNameError(
            f"an evaluation was to be read from {path}.",
            "found: a folder" if path.is_dir() else "found: no such file",
            "name a file that rlvr eval --out wrote",
        )
    return path.read_bytes()


def _facts(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Facts that a line holds about its evaluation, without values of a wrong type."""
    found = record.get("evaluation") or {}
    kinds = {"model": str, "split": str, "sample_s": int | float, "judge_s": int | float}
    kept = {k: v for k, v in found.items() if v is None or isinstance(v, kinds.get(k, object))}
    if not isinstance(kept.get("held_out"), bool | None):
        kept["held_out"] = None
    return kept


def _problem(record: Mapping[str, Any]) -> Problem:
    labels, digest = record.get("labels") or {}, str(record.get("digest", ""))
    if not all(isinstance(value, str) for value in labels.values()):
        raise TypeError("a label that is no text")
    split = _facts(record).get("split") or ""
    return Problem(id=record["id"], prompt=(), split=split, labels=labels, digest=digest)


def _outcome(record: Mapping[str, Any]) -> Outcome:
    if record["kind"] == "failed":
        return Failed(reason=str(record["reason"]))
    outcome = outcome_from_json(record, cached=bool(record.get("cached")))
    if fault := fault_of_outcome(outcome):
        raise ValueError(fault)
    return outcome
