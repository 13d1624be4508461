"""One completion in the making."""

from __future__ import annotations

import math

from rlvr import BackendError, Completion, Finish, GenerateRequest, Tokenizer
from rlvr_torch.generation.stop_strings import StopStrings, TailDecoder


class RunningSequence:
    """
    A request and what was drawn for it.

    Args:
        request: What was asked for.
        room: Most tokens it may draw.
        tokenizer: Makes text of the tokens; one that `has_bytes` is asked for each token's bytes
            where there are stop texts, others decode the tail of the completion.
        ends: Tokens that end it; None: those that end the policy's turn.
    """

    names_versions = True  # whether its completion names the versions that drew it

    def __init__(
        self,
        request: GenerateRequest,
        room: int,
        tokenizer: Tokenizer,
        ends: frozenset[int] | None = None,
    ) -> None:
        self.request = request
        self.room = room
        self._tokenizer = tokenizer
        self._ends = tokenizer.ends if ends is None else ends
        self._tokens: list[int] = []
        self._logprobs: list[float] = []
        self._versions: list[int] = []
        self._finish: Finish = "length"
        stops = request.params.stop
        self._watch = StopStrings(stops) if stops else None
        self._tail = TailDecoder(tokenizer.decode) if stops and not tokenizer.has_bytes else None

    def take(self, token: int, logprob: float, version: int | None = None) -> bool:
        """
        Add a token drawn by weights of this version; True when the completion has ended.

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
        if self.names_versions and version is not None and version not in self._versions[-1:]:
            self._versions.append(version)
        if token in self._ends or self._reaches_stop(token):
            self._finish = "stop"
            return True
        return len(self._tokens) >= self.room

    @property
    def has_room(self) -> bool:
        return self.room > 0

    def _reaches_stop(self, token: int) -> bool:
        if self._watch is None:
            return False
        if self._tail is not None:
            return self._watch.add(self._tail.add(token).encode())
        return self._watch.add(self._tokenizer.bytes_of(token))

    @property
    def completion(self) -> Completion:
        """The tokens so far; `text` is without the token or the text that ended it."""
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
        is_ended = bool(self._tokens) and self._tokens[-1] in self._ends
        return self._tokenizer.decode(self._tokens[:-1] if is_ended else self._tokens)
