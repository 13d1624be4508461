"""Reads what a sandboxed command writes: bounded; picks cocotb's summaries out of it."""

from __future__ import annotations

import asyncio
import re

_KEPT = 400_000
_MOST_SUMMARIES = 10_000
_SUMMARY = re.compile(rb"\*\* TESTS=(\d+) PASS=(\d+) FAIL=(\d+) SKIP=(\d+)")


class Collector:
    """Keeps the beginning and the end of an output, and cocotb's summaries in all of it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        self._carry = b""
        self.summaries: list[tuple[int, int, int, int]] = []

    async def read(self, stream: asyncio.StreamReader) -> bool:
        """Read to the end of the stream; False where it held more than the limit."""
        total = 0
        while chunk := await stream.read(1 << 16):
            total += len(chunk)
            if total > self._limit:
                return False
            self._keep(chunk)
        return True

    def _keep(self, chunk: bytes) -> None:
        room = _KEPT - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:] if room > 0 else chunk
        del self._tail[: max(0, len(self._tail) - _KEPT)]
        text = self._carry + chunk
        end = text.rfind(b"\n") + 1
        if len(self.summaries) < _MOST_SUMMARIES:
            for match in _SUMMARY.finditer(text[:end]):
                tests, passed, failed, skipped = (int(number) for number in match.groups())
                self.summaries.append((tests, passed, failed, skipped))
        self._carry = text[end:][-4096:]

    def text(self) -> str:
        """What was kept."""
        gap = b"\n[...]\n" if len(self._tail) >= _KEPT else b""
        return (bytes(self._head) + gap + bytes(self._tail)).decode(errors="replace")
