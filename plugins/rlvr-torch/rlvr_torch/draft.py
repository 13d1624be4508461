"""One completion in the making."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlvr.errors import BackendError
from rlvr.parts import Tokenizer
from rlvr.types import Completion, Finish, GenerateRequest
from rlvr_torch.stop_watch import StopWatch, TailDecoder


def stop_ids_of(tokenizer: Tokenizer) -> frozenset[int]:
    """The tokens that end a completion: the tokenizer's `stop_ids`, or its end of text."""
    return frozenset(getattr(tokenizer, "stop_ids", None) or {tokenizer.eos_id})


class Draft:
    """
    A request and what was drawn for it.

    Args:
        request: What was asked for.
        room: Most tokens it may draw.
        tokenizer: Makes text of the tokens; one with `bytes_of` is asked for each token's bytes
            where there are stop texts, others decode the tail of the completion.
    """

    def __init__(self, request: GenerateRequest, room: int, tokenizer: Tokenizer) -> None:
        self.request = request
        self.room = room
        self._tokenizer = tokenizer
        self._stop_ids = stop_ids_of(tokenizer)
        self._tokens: list[int] = []
        self._logprobs: list[float] = []
        self._versions: list[int] = []
        self._finish: Finish = "length"
        self._watch: StopWatch | None = None
        self._tail: TailDecoder | None = None
        self._bytes_of: Callable[[int], bytes] | None = getattr(tokenizer, "bytes_of", None)
        if request.params.stop:
            self._watch = StopWatch(request.params.stop)
            if self._bytes_of is None:
                self._tail = TailDecoder(tokenizer.decode)

    def take(self, token: int, logprob: float, version: int | None = None) -> bool:
        """
        Add a token that was drawn by weights of this version; True when the completion has ended.

        Raises:
            BackendError: The logprob is not finite.
        """
        if not math.isfinite(logprob):
            raise BackendError(
                f"the model's logits are not finite (token {len(self._tokens)} of a completion): "
                "the weights are damaged or have diverged"
            )
        self._tokens.append(token)
        self._logprobs.append(logprob)
        if version is not None and version not in self._versions[-1:]:
            self._versions.append(version)
        if token in self._stop_ids or self._reaches_stop(token):
            self._finish = "stop"
            return True
        return len(self._tokens) >= self.room

    def _reaches_stop(self, token: int) -> bool:
        if self._watch is None:
            return False
        if self._tail is not None:
            return self._watch.add(self._tail.add(token).encode())
        assert self._bytes_of is not None
        return self._watch.add(self._bytes_of(token))

    @property
    def completion(self) -> Completion:
        """What was drawn so far; `text` is without the token or the text that ended it."""
        return Completion(
            tokens=self._tokens,
            logprobs=self._logprobs,
            text=self._text(),
            finish=self._finish,
            versions=self._versions,
        )

    def _text(self) -> str:
        if self._watch is not None:
            return self._watch.text + ("" if self._tail is None else self._tail.rest)
        is_ended = bool(self._tokens) and self._tokens[-1] in self._stop_ids
        return self._tokenizer.decode(self._tokens[:-1] if is_ended else self._tokens)
