"""SWE-agent's `.traj` files and demonstrations: steps with thought, action and observation.

The fields `thought` and `action` are what SWE-agent's own parser found in `response`; they say
where the thought ends, whatever the parser was (fences, `<command>`, tool calls). A demonstration
within the history is a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlvr_sad.formats.calls import as_text, call_text, labels_of
from rlvr_sad.formats.message import read_message
from rlvr_sad.spans.roles import MODEL, TOOL
from rlvr_sad.trajectory import SpanType
from rlvr_sad.trajectory_builder import BadRecordError, Piece, TrajectoryBuilder

_MARK = re.compile(r"```.*|<.*>")
_CLOSING = re.compile(r"[^\n]*\n[ \t\r]*(?:```.*|</.*>[ \t\r]*$)", re.MULTILINE)
"""The rest of a line and the next one, which closes a fence or a tag."""


class SweAgent:
    """One run a record: its prompts from `history`, its steps from `trajectory`."""

    def claims(self, record: Any) -> bool:
        """True where the steps, or messages with an agent's name, are there."""
        if not isinstance(record, dict):
            return False
        steps, history = record.get("trajectory"), record.get("history")
        if isinstance(steps, list) and steps:
            return all(_is_step(step) for step in steps[:3])
        return isinstance(history, list) and bool(history) and all(map(_is_entry, history[:3]))

    def read(self, record: Any) -> Iterable[TrajectoryBuilder]:
        draft = TrajectoryBuilder(labels=labels_of(record))
        info = record.get("info")
        if isinstance(info, Mapping):
            draft.labels.update(labels_of(info))
        history = [m for m in record.get("history") or [] if isinstance(m, dict)]
        own = [m for m in history if m.get("role") == "assistant" and not m.get("is_demo")]
        first = history.index(own[0]) if own else len(history)
        for entry in history[:first]:
            _add(draft, entry, "other")
        steps = record.get("trajectory")
        if steps:
            calls = [m.get("tool_calls") for m in own] if len(own) == len(steps) else []
            self._steps(draft, steps, calls)
        else:
            self._history(draft, history[first:])
        if not (steps or own):
            raise BadRecordError("no step of the model: nothing can be learnt from it")
        return [draft]

    def _steps(self, draft: TrajectoryBuilder, steps: Sequence[Any], calls: Sequence[Any]) -> None:
        for number, step in enumerate(steps, start=1):
            if not _is_step(step):
                raise BadRecordError(f"step {number} has no action and observation")
            draft.message(step_pieces(step, calls[number - 1] if calls else step.get("tool_calls")))
            observation = as_text(step.get("observation") or "")
            draft.message([Piece("observation", observation, TOOL)])

    def _history(self, draft: TrajectoryBuilder, entries: Sequence[Mapping[str, Any]]) -> None:
        for number, entry in enumerate(entries, start=1):
            if entry.get("role") == "assistant" and not entry.get("is_demo"):
                said = {"role": "assistant", "content": entry.get("content")}
                step = {**entry, "response": read_message(said, number).text}
                draft.message(step_pieces(step, entry.get("tool_calls")))
            else:
                _add(draft, entry, "other" if entry.get("is_demo") else "observation")


def step_pieces(step: Mapping[str, Any], calls: Any) -> list[Piece]:
    """The model's turn of one step: what it said, cut at the action, then its tool calls."""
    response = as_text(step.get("response") or "")
    thought, action = as_text(step.get("thought") or ""), as_text(step.get("action") or "").strip()
    at = -1 if calls else _place_of(action, response, thought)
    if at < 0:  # the action is not in the words: it was made of something else
        texts = [call_text(call) for call in calls] if calls else [action]
        turn = [Piece("reasoning", response or thought), *(Piece("action", t) for t in texts)]
        kept = [piece for piece in turn if piece.text.strip()]
        return [one for piece in kept for one in (Piece("other", "\n", "template"), piece)][1:]
    start, end = _with_fence(response, at, at + len(action))
    return [
        Piece("reasoning", response[:start]),
        Piece("action", response[start:end]),
        Piece("reasoning" if response[end:].strip() else "other", response[end:]),
    ]


def _place_of(action: str, response: str, thought: str) -> int:
    """Where the action begins: after the thought, else its last place; -1: it is not there."""
    if not action:
        return -1
    if thought.strip() and response.startswith(thought.rstrip()):
        return response.find(action, len(thought.rstrip()))
    return response.rfind(action)


def _with_fence(text: str, start: int, end: int) -> tuple[int, int]:
    """The action with the marks around it: the line before and after, where they are such."""
    before = text.rfind("\n", 0, max(start - 1, 0)) + 1
    if _MARK.fullmatch(text[before:start].strip()) is None:
        return start, end
    closing = _CLOSING.match(text, end)
    return before, end if closing is None else closing.end()


def _add(draft: TrajectoryBuilder, entry: Mapping[str, Any], kind: SpanType) -> None:
    if "content" not in entry:
        return
    message = read_message({"role": entry.get("role"), "content": entry["content"]}, 0)
    role = message.role if message.role != MODEL else "user"
    for part in message.parts:
        if part.media is not None:
            draft.part()
            draft.add(Piece("other", part.text, role), part.media)
        else:
            draft.message([Piece(kind, part.text, TOOL if kind == "observation" else role)])


def _is_step(value: Any) -> bool:
    if not isinstance(value, dict) or not {"action", "observation"} <= value.keys():
        return False
    return "response" in value or "thought" in value


def _is_entry(value: Any) -> bool:
    if not isinstance(value, dict) or "role" not in value:
        return False
    return not {"agent", "message_type", "thought"}.isdisjoint(value)
