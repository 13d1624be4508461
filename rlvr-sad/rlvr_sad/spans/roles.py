"""The names that formats give to who speaks."""

from __future__ import annotations

SYSTEM = "system"
USER = "user"
MODEL = "assistant"
TOOL = "tool"

_NAMES = {
    **dict.fromkeys(("system", "developer", "system_prompt", "context"), SYSTEM),
    **dict.fromkeys(("user", "human", "prompter", "customer", "question"), USER),
    **dict.fromkeys(
        ("assistant", "gpt", "model", "ai", "agent", "bot", "chatgpt", "bing", "bard", "claude"),
        MODEL,
    ),
    **dict.fromkeys(("function_call", "tool_call", "tool_calls", "function_calls"), "call"),
    **dict.fromkeys(
        (
            *("tool", "function", "observation", "ipython", "environment", "env", "exit"),
            *("function_response", "tool_response", "tool_result", "tool_results"),
        ),
        TOOL,
    ),
}


def role_of(name: str) -> str | None:
    """system, user, assistant, tool, or `call` for a call that is a message; None: unknown."""
    return _NAMES.get(name.lower())
