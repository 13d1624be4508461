"""The first prompt of a datum in the teacher's tokens and with the teacher's template."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from rlvr import Datum, Message, Tokenizer
from rlvr_distill.cross_tokenizer.token_bytes import TokenBytes

_ANSWER = "Zebra"
"""A marker answer, to find where the answer stands in a rendered conversation."""
_KEPT = 4096
"""Prompts remembered: a group's data share theirs."""


class TeachersPrompt:
    """
    Renders the prompt with the teacher's own template, if its messages are known.

    The messages that a datum carries (`Datum.prompt`) are rendered with the student's template
    first: only if that gives the tokens that the datum begins with are they what it was asked.
    Where the teacher opens an answer with more control tokens than a generation prompt has
    (gpt-oss: `<|channel|>final<|message|>`), these are put before the answer too.
    """

    def __init__(self, ours: Tokenizer, theirs: TokenBytes) -> None:
        self._ours, self._theirs = ours, theirs
        self._both = lru_cache(maxsize=_KEPT)(self._render)

    def __call__(self, datum: Datum) -> Sequence[int] | None:
        """The teacher's ids; None where the messages are unknown or say something else."""
        if not datum.prompt or not datum.mask.any():
            return None
        found = self._both(datum.prompt)
        if found is None:
            return None
        ours, theirs = found
        first = int(np.argmax(datum.mask))
        return theirs if np.array_equal(datum.tokens[:first], ours) else None

    def _render(self, messages: tuple[Message, ...]) -> tuple[list[int], list[int]] | None:
        teacher = self._theirs.tokenizer
        try:
            ours, theirs = list(self._ours.render(messages)), list(teacher.render(messages))
        except (ValueError, RuntimeError):  # a template that knows no such messages
            return None
        return ours, [*theirs, *self._opening(messages, theirs)]

    def _opening(self, messages: tuple[Message, ...], prompt: list[int]) -> list[int]:
        """Ids between the generation prompt and the text of an answer."""
        answered = [Message(role="assistant", content=_ANSWER), Message(role="user", content="Hi")]
        try:
            ids = list(self._theirs.tokenizer.render([*messages, *answered]))
        except (ValueError, RuntimeError):
            return []
        if ids[: len(prompt)] != prompt:
            return []
        for at in range(len(prompt), len(ids)):
            rest = b"".join(map(self._theirs.bytes_of, ids[at:]))
            if rest.startswith(_ANSWER.encode()):
                opening = ids[len(prompt) : at]
                return opening if opening and opening[0] in self._theirs.controls else []
        return []
