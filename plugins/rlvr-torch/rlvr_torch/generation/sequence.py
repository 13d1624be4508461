"""A completion that is being drawn, and its stop texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from attrs import define, field

from rlvr import BackendError, Completion, Finish, GenerateRequest, Tokenizer

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


class StopStrings:
    """
    Watches one completion's bytes as its tokens arrive, looking only at the new tail.

    Works on bytes, so a stop text that begins in one token and ends in another is found.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop.encode() for stop in stops if stop]
        self._reach = max((len(stop) for stop in self._stops), default=1) - 1
        self.seen = bytearray()

    def add(self, piece: bytes) -> bool:
        """Take one token's bytes; True when a stop text is now complete."""
        start = max(0, len(self.seen) - self._reach)
        self.seen += piece
        return any(self.seen.find(stop, start) >= 0 for stop in self._stops)

    @property
    def text(self) -> str:
        """The text before the first stop text; bytes that are not UTF-8 become U+FFFD."""
        found = [at for stop in self._stops if (at := self.seen.find(stop)) >= 0]
        return self.seen[: min(found, default=len(self.seen))].decode("utf-8", errors="replace")


class TailDecoder:
    """
    The text that each further token adds, for tokenizers that only decode whole sequences.

    A token's text may depend on the one before it (a space, a character in several parts), so the
    tail since the last complete piece is decoded again with each token, and nothing before it. A
    tail that ends in U+FFFD may be part of a character: its text comes with the token that
    completes it. This is how inference servers stream text.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._from = 0  # first token that is decoded again
        self._told = 0  # tokens whose text was given

    def add(self, token: int) -> str:
        """Take one token; the new text, "" where a character is not complete yet."""
        self._tokens.append(token)
        told = self._decode(self._tokens[self._from : self._told])
        now = self._decode(self._tokens[self._from :])
        if len(now) <= len(told) or now.endswith(_INCOMPLETE):
            return ""
        self._from, self._told = self._told, len(self._tokens)
        return now[len(told) :]

    @property
    def rest(self) -> str:
        """The text of incomplete tokens at the end."""
        told = self._decode(self._tokens[self._from : self._told])
        return self._decode(self._tokens[self._from :])[len(told) :]


@define(eq=False)
class RunningSequence:
    """A request and what was drawn for it."""

    request: GenerateRequest
    room: int  # most tokens it may draw
    # One that `has_bytes` is asked for each token's bytes where there are stop texts; others decode
    # the tail of the completion.
    _tokenizer: Tokenizer
    _ends: frozenset[int] = field()  # tokens that end it; by default those that end the turn
    names_versions: bool = True  # whether its completion names the versions that drew it
    _tokens: list[int] = field(factory=list, init=False)
    _logprobs: list[float] = field(factory=list, init=False)
    _versions: list[int] = field(factory=list, init=False)
    _finish: Finish = field(default="length", init=False)
    _watch: StopStrings | None = field(default=None, init=False)
    _tail: TailDecoder | None = field(default=None, init=False)

    @_ends.default
    def _ends_of_the_turn(self) -> frozenset[int]:
        return self._tokenizer.ends

    def __attrs_post_init__(self) -> None:
        if stops := self.request.params.stop:
            self._watch = StopStrings(stops)
            self._tail = None if self._tokenizer.has_bytes else TailDecoder(self._tokenizer.decode)

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

    def take_all(
        self, tokens: list[int], logprobs: list[float], version: int | None = None
    ) -> bool:
        """As `take`, several tokens in order; without stop texts, none but the last may end it."""
        if self._watch is not None:
            pairs = zip(tokens, logprobs, strict=True)
            return any(self.take(token, logprob, version) for token, logprob in pairs)
        self._tokens += tokens[:-1]
        self._logprobs += logprobs[:-1]
        return self.take(tokens[-1], logprobs[-1], version)

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end it."""
        return self._ends

    @property
    def is_watched(self) -> bool:
        """Whether it may end with a stop text."""
        return self._watch is not None

    def restart(self) -> None:
        """Forget what was drawn: it is drawn again, with the same random numbers."""
        self._tokens, self._logprobs, self._versions = [], [], []
        self.__attrs_post_init__()

    @property
    def drawn(self) -> Sequence[int]:
        """The tokens so far."""
        return self._tokens

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
