"""Notices that a completion has reached one of its stop texts."""

from __future__ import annotations

from collections.abc import Sequence


class StopWatch:
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
