"""Turn messages into tokens: by the model's chat template, or by a renderer of the cookbook."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from tinker_cookbook import renderers
from tinker_cookbook.tokenizer_utils import get_tokenizer

from rlvr import FastTokenizer, Message, Tokenizer, wrapped_tokenizer


class Speech(Protocol):
    """One conversation, in the order: opening, text, following, text, following, ..."""

    stop: list[str] | list[int]

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the whole first prompt."""

    def text(self, action: Sequence[int]) -> str:
        """What the policy said, without its end of turn."""

    def following(self, so_far: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """All token ids of the next prompt; `so_far` are those of the conversation until now."""


class TemplateSpeech:
    """
    The model's own chat template, as `rlvr run` renders it.

    Args:
        tokenizer: Of the policy.
        stop: Texts that end a turn, besides the policy's own end of turn.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._texts = tuple(stop)
        # the service takes ids or texts, not both
        ends = sorted(tokenizer.ends)
        spelled = [tokenizer.decode([index]) for index in ends]
        self.stop: list[str] | list[int] = [*spelled, *stop] if stop else ends

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """The template up to where the policy begins."""
        return self._tokenizer.render(messages)

    def text(self, action: Sequence[int]) -> str:
        """The text before the first end of turn or stop text."""
        ids = list(action)
        while ids and ids[-1] in self._tokenizer.ends:
            ids.pop()
        text = self._tokenizer.decode(ids)
        for stop in self._texts:
            text = text.partition(stop)[0]
        return text

    def following(self, so_far: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """What was said, the end of the policy's turn where it broke off, the next messages."""
        closing = self._tokenizer.closing(so_far)
        return [*so_far, *closing, *self._tokenizer.render(messages, first=False)]


class RendererSpeech:
    """A renderer of the cookbook: it renders the whole conversation again each turn."""

    def __init__(self, renderer: renderers.Renderer) -> None:
        self._renderer = renderer
        self._said: list[Any] = []
        self.stop: list[str] | list[int] = renderer.get_stop_sequences()

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """The renderer's generation prompt."""
        return self.following((), messages)

    def text(self, action: Sequence[int]) -> str:
        """The text of the message that the renderer parses; it is kept for later turns."""
        message, _ = self._renderer.parse_response(list(action))
        self._said.append(message)
        return str(renderers.get_text_content(message))

    def following(self, so_far: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """The whole conversation, rendered anew."""
        self._said += [{"role": m.role, "content": m.content} for m in messages]
        ids: list[int] = self._renderer.build_generation_prompt(self._said).to_ints()
        return ids


@lru_cache(maxsize=8)
def tokenizer_of(model_name: str) -> FastTokenizer:
    """
    The tokenizer that the cookbook has under a model's name, with the model's template.

    Raises:
        BackendError: It has no tokenizer.json, or a template that fails.
    """
    return wrapped_tokenizer(get_tokenizer(model_name), model_name, "tinker")


@lru_cache(maxsize=8)
def renderer_of(renderer_name: str, model_name: str) -> renderers.Renderer:
    """The cookbook's renderer by its name."""
    return renderers.get_renderer(renderer_name, get_tokenizer(model_name))
