"""One message of a chat in any of the common shapes, as its parts.

OpenAI (`role`, `content`, `tool_calls`), ShareGPT (`from`, `value`), Anthropic (`tool_use`),
LLaMA-Factory (typed parts with `value`), with reasoning beside the content (`reasoning_content`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from attrs import frozen

from rlvr_sad.formats.calls import as_text, call_text
from rlvr_sad.spans.roles import TOOL, role_of
from rlvr_sad.trajectory import Media
from rlvr_sad.trajectory_builder import BadRecordError

_REASONING = ("reasoning_content", "reasoning", "thinking", "thought_process")
_TEXT = frozenset({"text", "input_text", "output_text", "refusal"})
_MEDIA = {
    **dict.fromkeys(("image", "image_url", "input_image"), "image"),
    **dict.fromkeys(("video", "video_url"), "video"),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), "audio"),
}


@frozen
class Part:
    """A part of a message: text, reasoning, a call, an answer of a tool, or media."""

    kind: Literal["text", "reasoning", "call", "answer", "media"]
    text: str
    media: Media | None = None


@frozen
class Message:
    """Role and parts; `is_typed` if the format itself separates reasoning from text."""

    role: str
    parts: tuple[Part, ...]
    is_typed: bool = False

    @property
    def has_calls(self) -> bool:
        return any(part.kind == "call" for part in self.parts)

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.parts if part.kind == "text")


def is_message(value: Any) -> bool:
    """True for an object that says who speaks and what."""
    if not isinstance(value, dict):
        return False
    speaker = value.get("role", value.get("from"))
    says = ("content", "value", "tool_calls", "function_call", "text", "parts")
    return isinstance(speaker, str) and any(key in value for key in says)


def read_message(value: Any, number: int) -> Message:
    """
    A message.

    Raises:
        BadRecordError: It has no role, an unknown one, or content that is no text and no parts.
    """
    if not is_message(value):
        raise BadRecordError(f"message {number} has no role and content")
    name = value.get("role", value.get("from"))
    role = role_of(name)
    if role is None:
        raise BadRecordError(f"message {number} has the unknown role {name!r}")
    content = value.get("content", value.get("value", value.get("text", value.get("parts"))))
    try:
        reasoning = list(_beside(value))
        parts = list(_parts(content, role))
        parts += [Part("call", call_text(call)) for call in _calls(value)]
    except BadRecordError as error:
        raise BadRecordError(f"message {number}: {error}") from None
    if role == "call":
        return Message("assistant", tuple(Part("call", p.text) for p in parts), True)
    is_typed = bool(reasoning) or any(part.kind == "reasoning" for part in parts)
    return Message(role, (*reasoning, *parts), is_typed)


def _beside(value: dict[str, Any]) -> Iterator[Part]:
    for key in _REASONING:
        if isinstance(value.get(key), str) and value[key]:
            yield Part("reasoning", value[key])
            return
    blocks = value.get("thinking_blocks")
    if isinstance(blocks, list):
        for block in blocks:
            if isinstance(block, dict) and isinstance(block.get("thinking"), str):
                yield Part("reasoning", block["thinking"])


def _calls(value: dict[str, Any]) -> list[Any]:
    calls, older = value.get("tool_calls"), value.get("function_call")
    if isinstance(calls, str):  # the whole list as JSON
        return [calls] if calls.strip() else []
    found = [calls] if isinstance(calls, dict) else list(calls) if isinstance(calls, list) else []
    return [*found, older] if older and not isinstance(older, bool) else found


def _parts(content: Any, role: str) -> Iterator[Part]:
    if content is None or content == "":
        return
    if isinstance(content, str):
        yield Part("text", content)
    elif isinstance(content, list) and all(isinstance(p, str) for p in content):
        yield Part("text", "\n".join(content))
    elif isinstance(content, list) and all(_is_part(p) for p in content):
        for part in content:
            yield from _part(part)
    elif role == TOOL:
        yield Part("text", as_text(content))
    else:
        raise BadRecordError(f"its content is {type(content).__name__}, expected text or parts")


def _is_part(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, dict) and isinstance(value.get("type"), str)
    )


def _part(part: Any) -> Iterator[Part]:
    if isinstance(part, str):
        yield Part("text", part)
        return
    kind = part["type"]
    said = part.get("text", part.get("value", part.get("content")))
    if kind in _TEXT:
        yield Part("text", as_text(said if said is not None else part.get("refusal", "")))
    elif kind in ("reasoning", "thinking", "redacted_thinking"):
        yield Part("reasoning", as_text(part.get("thinking", said) or ""))
    elif kind in ("tool_call", "tool_use", "function_call"):
        yield Part("call", said if isinstance(said, str) else call_text(said or part))
    elif kind in ("tool_result", "tool_response", "function_call_output"):
        yield from _answers(said if said is not None else part.get("output", ""))
    elif kind in _MEDIA:
        media = Media(kind=_MEDIA[kind], source=_source(part))
        yield Part("media", f"<{media.kind}>", media)
    else:
        raise BadRecordError(f"a part has the unknown type {kind!r}")


def _answers(said: Any) -> Iterator[Part]:
    if isinstance(said, list) and all(_is_part(p) for p in said):
        for inner in said:
            for part in _part(inner):
                yield Part("answer", part.text, part.media) if part.kind != "media" else part
    else:
        yield Part("answer", as_text(said))


def _source(part: dict[str, Any]) -> str:
    for key in ("value", "image_url", "video_url", "audio_url", "image", "video", "audio", "url"):
        found = part.get(key)
        if isinstance(found, dict):
            found = found.get("url", found.get("data"))
        if isinstance(found, str):
            return found
    source = part.get("source", part.get("input_audio"))
    if isinstance(source, dict):
        return str(source.get("url", source.get("data", "")))
    return ""
