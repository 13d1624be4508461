"""Notices that a completion has reached one of its stop texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
        """What came before the first stop text; bytes that are not UTF-8 become U+FFFD."""
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
