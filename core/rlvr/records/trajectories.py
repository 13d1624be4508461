"""Convert trajectories to the JSON lines of a run's `trajectories/`, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from rlvr.types import ScoredGroup, Segment, Trajectory
from rlvr.verification.verdict_cache import outcome_to_json


def trajectory_records(
    group: ScoredGroup, step: int, *, are_recorded: bool = False
) -> Iterable[dict[str, Any]]:
    """
    A group's lines of `trajectories/`: an object a trajectory.

    Of those that are recorded elsewhere they say which they are, and not what is in them.
    """
    for index, (t, outcome) in enumerate(zip(group.trajectories, group.outcomes, strict=True)):
        yield {
            "step": step,
            "id": group.problem.id,
            "index": index,
            "seed": t.seed,
            "temperature": t.temperature,
            "finish": t.finish,
            "policy_version": t.policy_version,
            "policy_digest": t.policy_digest,
            **({"policy_versions": list(t.policy_versions)} if t.policy_versions else {}),
            "prompt_cut": t.prompt_cut,
            "error": t.error,
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
    """What tells a trajectory by its tokens and pictures, without these."""
    tokens, mask = trajectory.tokens, trajectory.mask
    seen = "".join(map(repr, trajectory.pictures)).encode()
    return {
        "tokens": len(tokens),
        "learnt": int(mask.sum()),
        "digest": hashlib.sha256(
            tokens.astype("<i4").tobytes() + mask.tobytes() + seen
        ).hexdigest(),
    }


def _segment(segment: Segment) -> dict[str, Any]:
    record: dict[str, Any] = {
        "author": segment.author,
        "text": segment.text,
        "tokens": segment.tokens.tolist(),
    }
    if segment.logprobs is not None:
        record["logprobs"] = [round(float(x), 6) for x in segment.logprobs]
    return record


def trajectory_from_json(record: Mapping[str, Any]) -> Trajectory:
    """
    The trajectory of a line of `trajectories/`.

    Raises:
        KeyError, TypeError, ValueError: The line holds none.
    """
    for name, kind in _KINDS.items():
        if not isinstance(record[name], kind):
            raise TypeError(f"{name} is {str(record[name])[:60]!r}")
    if not all(isinstance(segment.get("text", ""), str) for segment in record["segments"]):
        raise TypeError("a segment has a text that is none")
    return Trajectory(
        problem_id=record["id"],
        segments=[Segment(**segment) for segment in record["segments"]],
        finish=record["finish"],
        seed=record["seed"],
        index=record["index"],
        temperature=record["temperature"],
        policy_version=record["policy_version"],
        policy_digest=record["policy_digest"],
        policy_versions=record.get("policy_versions", ()),
        prompt_cut=record["prompt_cut"],
        error=record["error"],
        files=record.get("files"),
        notes=record.get("notes", {}),
    )


_KINDS: Mapping[str, Any] = {
    **dict.fromkeys(("id", "finish", "policy_digest", "error"), str),
    **dict.fromkeys(("seed", "index", "policy_version", "prompt_cut"), int),
    "temperature": int | float,
    "segments": list,
}
