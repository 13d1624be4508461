"""One record to its trajectories: decoded, claimed by a format, read; and the result as bytes."""

from __future__ import annotations

import json
import zlib
from typing import Any

import attrs
from attrs import frozen

from rlvr_sad.formats.catalog import Format, claimant, format_named, formats
from rlvr_sad.sessions.record import Raw, Rejected, not_utf8
from rlvr_sad.tokens import Tokens
from rlvr_sad.trajectory import AgentTrajectory, Media, Segment
from rlvr_sad.trajectory_builder import BadRecordError, TrajectoryBuilder


@frozen
class Outcome:
    """
    The result of one record: trajectories, or the reason why there are none.

    Attributes:
        trajectories: Usually one.
        rejected: Why there is none.
        name: What their ids begin with.
        own_id: The id that the record itself gives, "" where its place is its name.
    """

    trajectories: tuple[AgentTrajectory, ...] = ()
    rejected: Rejected | None = None
    name: str = ""
    own_id: str = ""


def read_record(raw: Raw, source: str, format_name: str = "") -> Outcome:
    """
    The trajectories of a record.

    Args:
        raw: Its bytes.
        source: The file, for reports.
        format_name: The only format to try; "" for the first that claims the record.
    """
    try:
        value = _value(raw)
        found = _format(value, format_name)
        drafts = _drafts(found, value)
        _label(drafts, value)
        own_id = _own_id(value)
        name = own_id or raw.id
        built = [d.build(id=name, format=found.name, source=source, line=raw.line) for d in drafts]
    except BadRecordError as error:
        reason = str(error)
    except UnicodeEncodeError as error:
        half = f"half of a surrogate pair (\\u{ord(error.object[error.start]):04x})"
        reason = f"it holds {half}, which is no text"
    except RecursionError:
        reason = "it is nested too deeply"
    else:
        return Outcome(tuple(built), name=name, own_id=own_id)
    return Outcome(rejected=Rejected(source=source, line=raw.line, id=raw.id, reason=reason))


def _drafts(found: Format, value: Any) -> list[TrajectoryBuilder]:
    try:
        drafts = list(found.adapter.read(value))
    except (BadRecordError, RecursionError):
        raise
    except Exception as error:  # the plugin border: an adapter met what its format does not allow
        reason = f"it is no {found.name}: {type(error).__name__}: {error}"
        raise BadRecordError(reason) from error
    if not drafts:
        raise BadRecordError("it holds no trajectory")
    return drafts


def _value(raw: Raw) -> Any:
    try:
        text = raw.data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRecordError(not_utf8(raw.data, error)) from None
    if raw.kind == "text":
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        message = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        place = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise BadRecordError(f"it is no JSON: {message}{place}") from None


def _format(value: Any, name: str) -> Format:
    if name:
        return format_named(name)
    found = claimant(value)
    if found is None:
        known = ", ".join(one.name for one in formats())
        raise BadRecordError(f"no format knows {_shape(value)} (known: {known})")
    return found


def _shape(value: Any) -> str:
    if isinstance(value, dict):
        keys = ", ".join(list(map(str, value))[:6]) or "nothing"
        return f"an object of {keys}"
    if isinstance(value, list):
        return f"a list of {_shape(value[0])}" if value else "an empty list"
    return f"a value of type {type(value).__name__}"


def _own_id(value: Any) -> str:
    """The id of an `{"id", "text"}` record; "" of any other."""
    if isinstance(value, dict) and isinstance(value.get("text"), str) and "id" in value:
        return str(value["id"])
    return ""


def _label(drafts: list[TrajectoryBuilder], value: Any) -> None:
    """
    The record's `id` among the labels of its trajectories.

    It is their name only in an `{"id", "text"}` record: elsewhere it may be that of a conversation
    or an example, and stand there many times.
    """
    own = value.get("id") if isinstance(value, dict) else None
    if isinstance(own, str | int) and not isinstance(own, bool) and own != "":
        for draft in drafts:
            draft.labels.setdefault("id", own)


Prepared = tuple[Outcome, tuple[Tokens, ...]]
"""The result of a record, and the tokens of each trajectory (none without a tokenizer)."""


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
