"""What became of a record as bytes, and back: without the file and the place it comes from."""

from __future__ import annotations

import json
import zlib

import attrs

from rlvr_sad.sessions.read import Outcome
from rlvr_sad.sessions.record import Raw, Rejected
from rlvr_sad.tokens import Tokens
from rlvr_sad.trajectory import AgentTrajectory, Media, Segment

Prepared = tuple[Outcome, tuple[Tokens, ...]]
"""What became of a record, and the tokens of each trajectory (none without a tokenizer)."""


def packed(prepared: Prepared) -> bytes:
    """A result as bytes."""
    outcome, tokens = prepared
    head = {
        "own_id": outcome.own_id,
        "rejected": outcome.rejected.reason if outcome.rejected else None,
        "trajectories": [attrs.asdict(t) for t in outcome.trajectories],
        "suffixes": [t.id[len(outcome.name) :] for t in outcome.trajectories],
        "lengths": [len(t.ids) for t in tokens],
    }
    text = zlib.compress(json.dumps(head, ensure_ascii=False).encode("utf-8"), 1)
    return len(text).to_bytes(8, "little") + text + b"".join(t.packed() for t in tokens)


def unpacked(data: bytes, raw: Raw, source: str) -> Prepared:
    """The same result, of a record at this place."""
    at = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(zlib.decompress(data[8:at]))
    if head["rejected"] is not None:
        refused = Rejected(source=source, line=raw.line, id=raw.id, reason=head["rejected"])
        return Outcome(rejected=refused, name=raw.id), ()
    name = head["own_id"] or raw.id
    trajectories = []
    for fields, suffix in zip(head["trajectories"], head["suffixes"], strict=True):
        fields |= {"id": name + suffix, "source": source, "line": raw.line}
        fields["notes"] = tuple(fields["notes"])
        for segment in fields["segments"]:
            segment["media"] = segment["media"] and Media(**segment["media"])
        fields["segments"] = tuple(Segment(**segment) for segment in fields["segments"])
        trajectories.append(AgentTrajectory(**fields))
    tokens = []
    for length in head["lengths"]:
        tokens.append(Tokens.unpacked(data, length, at))
        at += 5 * length
    return Outcome(tuple(trajectories), name=name, own_id=head["own_id"]), tuple(tokens)
