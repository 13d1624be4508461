"""What a record says about its trajectory besides the text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEYS = (
    *("reward", "score", "em", "f1", "resolved", "success", "win", "finish_type", "exit_status"),
    *("task", "task_id", "instance_id", "example_id", "problem_id", "question_id", "trial"),
    *("model", "answer", "tools"),
)


def labels_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of the record's well-known keys."""
    plain = (str, int, float, bool)
    return {key: record[key] for key in _KEYS if isinstance(record.get(key), plain)}
