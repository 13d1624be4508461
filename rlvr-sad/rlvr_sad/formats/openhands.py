"""OpenHands' event streams: actions of the agent and the observations they caused.

What the model said and called stands in `tool_call_metadata.model_response`; older events hold it
in `args`. Several events may come from one response: its words are taken once. Events that keep
the runtime's own records (recall, agent state) were not seen by the model as they stand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlvr_sad.formats.calls import as_text, call_text, labels_of
from rlvr_sad.spans.roles import SYSTEM, TOOL, USER
from rlvr_sad.trajectory_builder import BadRecordError, Piece, TrajectoryBuilder

_LISTS = ("history", "trajectory", "events", "trajs")
_BOOKKEEPING = frozenset(
    {"change_agent_state", "agent_state_changed", "recall", "null", "condensation", "pause"}
    | {"condensation_request", "resume", "start_server", "server_ready"}
)
_COMMANDS = {"run": "command", "run_ipython": "code", "browse": "url"}
_SAID = ("thought", "final_thought", "task_completed", "wait_for_response", "content")


class OpenHands:
    """One stream a record: a list of events, or an object that holds one."""

    def claims(self, record: Any) -> bool:
        """True where the first events are actions or observations."""
        return bool(_events(record))

    def read(self, record: Any) -> Iterable[TrajectoryBuilder]:
        draft = TrajectoryBuilder(labels=labels_of(record) if isinstance(record, dict) else {})
        seen: set[str] = set()
        for number, event in enumerate(_events(record), start=1):
            if not _is_event(event):
                raise BadRecordError(f"event {number} is neither an action nor an observation")
            if event.get("observation"):
                self._observe(draft, event)
            else:
                self._act(draft, event, seen)
        if draft.is_empty:
            raise BadRecordError("no event with text")
        return [draft]

    def _observe(self, draft: TrajectoryBuilder, event: Mapping[str, Any]) -> None:
        if event["observation"] in _BOOKKEEPING:
            return
        content = event.get("content")
        draft.message([Piece("observation", as_text("" if content is None else content), TOOL)])

    def _act(self, draft: TrajectoryBuilder, event: Mapping[str, Any], seen: set[str]) -> None:
        action = event["action"]
        given = event.get("args")
        args: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        if action in _BOOKKEEPING:
            return
        if event.get("source") in ("user", "environment") or action == "system":
            text = as_text(args.get("content") or event.get("message") or "")
            role = SYSTEM if action == "system" else USER
            draft.message([Piece("other", text, role)])
            return
        said, called = _response(event, seen)
        if said is None:  # an event without the model's own words
            said = as_text(args.get("thought") or "")
        if action == "message":
            text = as_text(args.get("content") or event.get("message") or "")
            draft.message([Piece("action", text)])
        elif action == "think":
            thought = as_text(args.get("thought") or said)
            draft.message([Piece("reasoning", said)] if said != thought else [])
            draft.message([Piece("reasoning", thought)])
        else:
            draft.message([Piece("reasoning", said)])
            draft.message([Piece("action", called or _own_call(action, args, said))])


def _response(event: Mapping[str, Any], seen: set[str]) -> tuple[str | None, str]:
    """The model's words (once a response; None: unknown) and the call of this event."""
    meta = event.get("tool_call_metadata")
    if not isinstance(meta, Mapping):
        return None, ""
    response = meta.get("model_response")
    choices = response.get("choices") if isinstance(response, Mapping) else None
    message = choices[0].get("message", {}) if choices else {}
    called = ""
    for call in message.get("tool_calls") or []:
        if isinstance(call, Mapping) and call.get("id") == meta.get("tool_call_id"):
            called = call_text(call)
    if not choices:
        return None, called
    name = str(response.get("id") or id(response)) if isinstance(response, Mapping) else ""
    if name in seen:
        return "", called
    seen.add(name)
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(str(p.get("text", "")) for p in content if isinstance(p, Mapping))
    return as_text(content or ""), called


def _own_call(action: str, args: Mapping[str, Any], said: str) -> str:
    """The call of an event that kept no response: its command, or its arguments as JSON."""
    key = _COMMANDS.get(action)
    if key is not None and isinstance(args.get(key), str):
        return str(args[key])
    kept = {k: v for k, v in args.items() if v not in (None, "", said) and k not in _SAID}
    return json.dumps({"name": action, "arguments": kept}, ensure_ascii=False)


def _events(record: Any) -> Sequence[Any]:
    found = record
    if isinstance(record, dict):
        found = next((record[k] for k in _LISTS if isinstance(record.get(k), list)), None)
    if not isinstance(found, list) or not found:
        return []
    if all(isinstance(pair, list) and all(map(_is_event, pair)) for pair in found):
        found = [event for pair in found for event in pair]  # [action, observation], as it once was
    return found if found and all(_is_event(event) for event in found[:3]) else []


def _is_event(value: Any) -> bool:
    if not isinstance(value, dict) or "role" in value:
        return False
    kinds = (value.get("action"), value.get("observation"))
    said = "args" in value or "content" in value or "message" in value
    return any(isinstance(kind, str) for kind in kinds) and said and "response" not in value
