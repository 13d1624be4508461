"""Convert trajectories to the JSON lines of a run's `trajectories/`, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from rlvr.types import ScoredGroup, Segment, Trajectory
from rlvr.verification.verdict import outcome_to_json

_PLAIN: Mapping[str, Any] = {
    **dict.fromkeys(("index", "seed"), int),
    "temperature": int | float,
    "finish": str,
    "policy_version": int,
    "policy_digest": str,
    "prompt_cut": int,
    "error": str,
}
"""Attributes of a trajectory that are written as they are, and their types."""


def trajectory_records(
    group: ScoredGroup, step: int, *, are_recorded: bool = False
) -> Iterable[dict[str, Any]]:
    """
    A group's lines of `trajectories/`: an object a trajectory.

    A line of a trajectory that is recorded elsewhere says which one it is, not what is in it.
    """
    for index, (t, outcome) in enumerate(zip(group.trajectories, group.outcomes, strict=True)):
        yield {
            "step": step,
            "id": group.problem.id,
            **{name: getattr(t, name) for name in _PLAIN},
            "index": index,
            **({"policy_versions": list(t.policy_versions)} if t.policy_versions else {}),
            **({} if t.files is None else {"files": dict(t.files)}),
            **({"notes": dict(t.notes)} if t.notes else {}),
            **({"problem_notes": dict(group.problem.notes)} if group.problem.notes else {}),
            **(
                {"recorded": _reference(t)}
                if are_recorded
                else {"segments": [_segment(s) for s in t.segments]}
            ),
            "outcome": outcome_to_json(outcome),
        }


def _reference(trajectory: Trajectory) -> dict[str, Any]:
    """Length and digest that identify a trajectory without its tokens and pictures."""
    tokens, mask = trajectory.tokens, trajectory.mask
    seen = "".join(map(repr, trajectory.pictures)).encode()
    digest = hashlib.sha256(tokens.astype("<i4").tobytes() + mask.tobytes() + seen).hexdigest()
    return {"tokens": len(tokens), "learnt": int(mask.sum()), "digest": digest}


def _segment(segment: Segment) -> dict[str, Any]:
    logprobs = segment.logprobs
    return {
        "author": segment.author,
        "text": segment.text,
        "tokens": segment.tokens.tolist(),
        **({} if logprobs is None else {"logprobs": [round(float(x), 6) for x in logprobs]}),
    }


def trajectory_from_json(record: Mapping[str, Any]) -> Trajectory:
    """
    The trajectory of a line of `trajectories/`.

    Raises:
        KeyError, TypeError, ValueError: The line holds none.
    """
    for name, kind in {**_PLAIN, "id": str, "segments": list}.items():
        if not isinstance(record[name], kind):
            raise TypeError(f"{name} is {str(record[name])[:60]!r}")
    if not all(isinstance(segment.get("text", ""), str) for segment in record["segments"]):
        raise TypeError("a segment has a text that is none")
    return Trajectory(
        problem_id=record["id"],
        segments=[Segment(**segment) for segment in record["segments"]],
        policy_versions=record.get("policy_versions", ()),
        files=record.get("files"),
        notes=record.get("notes", {}),
        **{name: record[name] for name in _PLAIN},
    )
