"""
What the formats have in common: labels of a record, and calls of tools in one form.

A call is written `{"name": ..., "arguments": ...}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rlvr_sad.trajectory_builder import BadRecordError

_KEYS = (
    *("reward", "score", "em", "f1", "resolved", "success", "win", "finish_type", "exit_status"),
    *("task", "task_id", "instance_id", "example_id", "problem_id", "question_id", "trial"),
    *("model", "answer", "tools"),
)


def labels_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of the record's well-known keys."""
    plain = (str, int, float, bool)
    return {key: record[key] for key in _KEYS if isinstance(record.get(key), plain)}


def call_text(call: Any) -> str:
    """
    One call as a line of JSON; a text that is no JSON stays as the model wrote it.

    Takes OpenAI's tool calls (also as JSON texts, as verifiers writes them), the older
    `function_call`, Anthropic's `tool_use`, and plain name and arguments.

    Raises:
        BadRecordError: There is no name.
    """
    if isinstance(call, str):
        try:
            parsed = json.loads(call)
        except ValueError:
            return call
        return call_text(parsed) if isinstance(parsed, dict) else call
    if not isinstance(call, dict):
        raise BadRecordError(f"a tool call is {type(call).__name__}, expected an object")
    inner = call.get("function", call)
    if isinstance(inner, str):  # {"function": "name", "arguments": ...}
        inner = {"name": inner, "arguments": call.get("arguments", {})}
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        written = json.dumps(call, ensure_ascii=False, default=str)
        short = written if len(written) < 80 else f"{written[:77]}..."
        raise BadRecordError(f"a tool call has no name: {short}")
    arguments = inner.get("arguments", inner.get("parameters", inner.get("input", {})))
    return json.dumps(
        {"name": inner["name"], "arguments": parsed_arguments(arguments)}, ensure_ascii=False
    )


def parsed_arguments(arguments: Any) -> Any:
    """Arguments as values, where they are JSON in a text; else as they are."""
    if isinstance(arguments, str):
        try:
            return json.loads(arguments)
        except ValueError:
            return arguments
    return arguments


def as_text(value: Any) -> str:
    """A tool's answer as text: texts unchanged, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
