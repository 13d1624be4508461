"""Chats: lists of messages in the shapes of OpenAI, ShareGPT, LLaMA-Factory, verifiers, FireAct.

Also of mini-swe-agent, whose model acts through fenced blocks, and whose environment answers as
the user.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rlvr_sad.formats.calls import labels_of
from rlvr_sad.formats.dialogue import acts_through_fences, answers_as_user, fill, read_messages
from rlvr_sad.formats.message import Message, is_message
from rlvr_sad.spans.roles import MODEL
from rlvr_sad.trajectory import Media
from rlvr_sad.trajectory_builder import BadRecordError, TrajectoryBuilder

_LISTS = ("messages", "conversations", "conversation", "traj", "trajectory", "dialogue", "history")
_MEDIA = (("images", "image"), ("videos", "video"), ("audios", "audio"))


class Chat:
    """One conversation a record, or two lists: `prompt` and `completion`."""

    def claims(self, record: Any) -> bool:
        """True for a list of messages, or an object that holds one under a usual name."""
        return bool(_lists(record))

    def read(self, record: Any) -> Iterable[TrajectoryBuilder]:
        values = [value for found in _lists(record) for value in found]
        messages = read_messages(values)
        if not any(message.role == MODEL for message in messages):
            raise BadRecordError("no message of the model: nothing can be learnt from it")
        draft = TrajectoryBuilder(format=_name(record, values, messages))
        if isinstance(record, dict):
            draft.labels.update(labels_of(record))
        fill(draft, messages, _media(record))
        return [draft]


def _lists(record: Any) -> list[Sequence[Any]]:
    """The lists of messages that make up the conversation, in order."""
    if isinstance(record, list):
        return [record] if record and all(is_message(m) for m in record[:3]) else []
    if not isinstance(record, dict):
        return []
    if "completion" in record and "prompt" in record:
        halves: list[Sequence[Any]] = [
            _as_messages(record["prompt"], "user"),
            _as_messages(record["completion"], "assistant"),
        ]
        return halves if all(halves) and isinstance(record["completion"], list) else []
    for key in _LISTS:
        found = record.get(key)
        if isinstance(found, list) and found and all(is_message(m) for m in found[:3]):
            system = record.get("system")
            if isinstance(system, str) and system:
                return [[{"role": "system", "content": system}], found]
            return [found]
    return []


def _as_messages(value: Any, role: str) -> list[Any]:
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return value if isinstance(value, list) and all(is_message(m) for m in value[:3]) else []


def _media(record: Any) -> list[Media]:
    if not isinstance(record, dict):
        return []
    found = []
    for key, kind in _MEDIA:
        values = record.get(key) or []
        values = [values] if isinstance(values, str) else values
        found += [Media(kind=kind, source=v if isinstance(v, str) else "") for v in values]
    return found


def _name(record: Any, values: Sequence[Any], messages: Sequence[Message]) -> str:
    """The family of the format, as exactly as the record shows it."""
    if isinstance(record, dict) and "completion" in record:
        return "verifiers"
    if any(p.media is not None for m in messages for p in m.parts) or _media(record):
        return "multimodal"
    if any(part.kind == "reasoning" for message in messages for part in message.parts):
        return "typed-parts"
    if any(isinstance(value, dict) and "from" in value for value in values):
        return "sharegpt"
    if any(message.has_calls or message.role == "tool" for message in messages):
        return "openai-tools"
    is_fenced = acts_through_fences(messages)
    if is_fenced:
        return "mini-swe"
    return "react-chat" if answers_as_user(messages, is_fenced) else "chat"
