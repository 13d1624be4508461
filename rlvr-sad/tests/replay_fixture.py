"""Chats with a tool, and a policy that reads bytes."""

from __future__ import annotations

import json
from typing import Any

from byte_tokenizer import ByteTokenizer

from rlvr.testing.fakes.policy import ScriptedPolicy


def chat(n: int, length: int = 1) -> dict[str, Any]:
    """A chat with a call, of about `length` times 60 characters."""
    call = {"function": {"name": "f", "arguments": json.dumps({"n": n})}}
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"question {n}?"}]
    for turn in range(length):
        messages += [
            {"role": "assistant", "content": f"why {turn}", "tool_calls": [call]},
            {"role": "tool", "content": f"got {turn}"},
        ]
    return {"messages": [*messages, {"role": "assistant", "content": "done"}], "task_id": n}


class Policy(ScriptedPolicy):
    """Reads bytes."""

    def __init__(self, context_length: int = 4096, tokenizer: Any = None) -> None:
        super().__init__(context_length=context_length)
        self.tokenizer = tokenizer or ByteTokenizer()
