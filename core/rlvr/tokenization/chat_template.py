"""Chat templates: the opening prompt, and the text between two turns.

The template itself is the model's own (Jinja, rendered by transformers). Here are the two things it
does not know: that the policy's turn is already there as tokens, and that a prompt's text is data,
in which the spelling of a control token means nothing.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve, frozen

from rlvr.errors import BackendError
from rlvr.types import Message

_TURN = "\ue000turn\ue001"
_QUOTED = re.compile("\ue000(\\d+)\ue001")
_MARKS = ("\ue000", "\ue001")  # quoted in texts too, so that no text can forge a placeholder


@frozen(kw_only=True)
class Piece:
    """A part of a rendered text: in a quoted one, control tokens are plain text."""

    text: str
    is_quoted: bool = False


class ChatTemplate:
    """
    Renders messages to text, in pieces.

    Args:
        apply: `conversation, is_open -> text`: the model's template, with its generation prompt
            where the conversation is open.
        controls: Spellings of the tokens that a text must never become.
        name: What the model is called in errors.
    """

    def __init__(
        self,
        apply: Callable[[list[dict[str, Any]], bool], str],
        controls: Sequence[str],
        name: str,
    ) -> None:
        self._apply = apply
        longest_first = sorted({*controls, *_MARKS}, key=len, reverse=True)
        self._quotable = "|".join(map(re.escape, longest_first))
        self._name = name

    def opening(self, messages: Sequence[Message]) -> list[Piece]:
        """
        The whole prompt up to where the policy begins.

        A system message goes in front of the user's where the template has no system role, and
        tools' messages are the user's where it has no tools. Contents are texts, or lists of parts
        for a template that leaves texts out.

        Raises:
            BackendError: The template fails on these messages, or leaves one out.
        """
        return self._pieces(messages, self._render)

    def following(self, messages: Sequence[Message]) -> list[Piece]:
        """The template's text between the end of the policy's turn and its next turn."""
        return self._pieces(messages, self._after_turn)

    def ending(self) -> list[Piece]:
        """The template's text after the policy's last turn."""
        return [Piece(text=self._after_turn([], is_open=False))]

    def _after_turn(self, quoted: list[Message], is_open: bool = True) -> str:
        said = [Message(role="user", content="Hi"), Message(role="assistant", content=_TURN)]
        _, turn, after = self._render([*said, *quoted], is_open).rpartition(_TURN)
        if not turn:
            raise self._failed([*said, *quoted], "it leaves out the assistant's earlier turns")
        return after

    def _pieces(
        self, messages: Sequence[Message], render: Callable[[list[Message]], str]
    ) -> list[Piece]:
        quotes: list[str] = []

        def quote(found: re.Match[str]) -> str:
            quotes.append(found[0])
            return f"\ue000{len(quotes) - 1}\ue001"

        quoted = [evolve(m, content=re.sub(self._quotable, quote, m.content)) for m in messages]
        if not quotes:
            return [Piece(text=render(quoted))]
        parts = _QUOTED.split(render(quoted))  # text, number, text, ...
        pieces = [Piece(text=parts[0])]
        for number, text in zip(parts[1::2], parts[2::2], strict=True):
            pieces += [Piece(text=quotes[int(number)], is_quoted=True), Piece(text=text)]
        return [piece for piece in pieces if piece.text]

    def _render(self, messages: list[Message], is_open: bool = True) -> str:
        merged = _merge_system(messages)
        reason = ""
        attempts = [messages, merged, _as_user(merged)]
        for in_parts, attempt in itertools.product((False, True), attempts):
            # templates of some vision-language models want parts (LLaVA, Idefics)
            contents = [
                [{"type": "text", "text": m.content}] if in_parts else m.content for m in attempt
            ]
            turns = [{"role": m.role, "content": c} for m, c in zip(attempt, contents, strict=True)]
            try:
                text = self._apply(turns, is_open)
            except Exception as error:  # a template is the model's code: it may raise anything
                reason = reason or f"{type(error).__name__}: {error}"
                continue
            missing = next((m for m in attempt if _is_left_out(m, text)), None)
            if missing is not None:
                reason = reason or f"it leaves out the {missing.role} message"
            elif not (in_parts and any(_is_printed(content, text) for content in contents)):
                return text
        raise self._failed(messages, reason)

    def _failed(self, messages: Sequence[Message], reason: str) -> BackendError:
        roles = ", ".join(m.role for m in messages)
        return BackendError(
            f"the chat template of {self._name} cannot render a conversation of {roles}\n"
            f"  found: {reason}\n"
            "  try: a model whose template has these roles, or mend chat_template.jinja "
            "(chat_template in tokenizer_config.json) in a copy of the model"
        )


def _is_left_out(message: Message, text: str) -> bool:
    content = message.content.strip()
    if message.role == "tool":  # often rewritten as JSON, with more or fewer escapes
        words = re.findall(r"\w+", content)
        return not all(word in text for word in words)
    return content not in text


def _is_printed(content: object, text: str) -> bool:
    """Whether a list of parts was printed as such, because the template expects texts."""
    return str(content) in text or json.dumps(content, ensure_ascii=False) in text


def _as_user(messages: list[Message]) -> list[Message]:
    """Tools' messages as the user's, for templates that know no tools."""
    return [evolve(m, role="user") if m.role == "tool" else m for m in messages]


def _merge_system(messages: list[Message]) -> list[Message]:
    """The system message in front of the first user message; unchanged where there is none."""
    users = [i for i, m in enumerate(messages) if m.role == "user"]
    if not users or messages[0].role != "system":
        return messages
    first = messages[users[0]]
    joined = evolve(first, content=f"{messages[0].content}\n\n{first.content}")
    return [*messages[1 : users[0]], joined, *messages[users[0] + 1 :]]
