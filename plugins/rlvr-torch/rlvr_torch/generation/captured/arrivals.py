"""Tokens that come from the device a pass late, kept on the host until somebody must look at them.

The device says where a completion may have ended; only there, and where stop texts are watched, is
a row looked at. What a row drew after its end, or before another completion took it, is thrown
away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from attrs import frozen

from rlvr_torch.generation.sequence import RunningSequence

_KEPT = 64  # tokens a row that are kept before it takes them


@frozen(kw_only=True, eq=False)
class _Pass:
    """A pass whose results are on their way."""

    rows: np.ndarray  # (n,)
    tenants: np.ndarray  # of these rows when the pass began, (n,)
    version: int | None
    wait: Callable[[], np.ndarray]  # gives `DecodeMemory.found` of these rows, (n, 3)


class Arrivals:
    """The results of passes, in order."""

    def __init__(self) -> None:
        self._passes: deque[_Pass] = deque()
        self._sequences: list[RunningSequence | None] = []
        self._tenants = np.zeros(0, np.int64)  # another number with each completion of a row
        self._count = np.zeros(0, np.int64)  # tokens of each row that are kept here
        self._is_watched = np.zeros(0, bool)
        self._tokens = np.zeros((0, _KEPT), np.int32)
        self._logprobs = np.zeros((0, _KEPT), np.float32)
        self._version: int | None = None  # of the kept tokens
        self._next = 1

    def __len__(self) -> int:
        """Passes that nobody has read yet."""
        return len(self._passes)

    def reserve(self, rows: int) -> None:
        more = rows - len(self._sequences)
        if more > 0:
            self._sequences += [None] * more
            for name in ("tenants", "count", "is_watched", "tokens", "logprobs"):
                value = getattr(self, f"_{name}")
                room = np.zeros((more, *value.shape[1:]), value.dtype)
                setattr(self, f"_{name}", np.concatenate([value, room]))

    def seat(self, row: int, sequence: RunningSequence | None) -> None:
        """The row is this completion's from the next pass on; None: it is free."""
        self._sequences[row] = sequence
        self._tenants[row] = 0 if sequence is None else self._next
        self._next += 1
        self._count[row] = 0
        self._is_watched[row] = sequence is not None and sequence.is_watched

    def send(
        self, rows: Sequence[int], version: int | None, wait: Callable[[], np.ndarray]
    ) -> None:
        """A pass of these rows has begun."""
        at = np.asarray(rows)
        self._passes.append(_Pass(rows=at, tenants=self._tenants[at], version=version, wait=wait))

    def read(self, count: int) -> list[int]:
        """
        Wait for the results of `count` passes; gives the rows whose completions have ended.

        Raises:
            BackendError: Logits are not finite.
        """
        ended = []
        for _ in range(count):
            one = self._passes.popleft()
            if one.version != self._version:
                self.flush()
                self._version = one.version
            found = one.wait()
            is_new = (one.tenants > 0) & (one.tenants == self._tenants[one.rows])
            rows, found = one.rows[is_new], found[is_new]
            at = self._count[rows]
            self._tokens[rows, at] = found[:, 0]
            self._logprobs[rows, at] = np.ascontiguousarray(found[:, 1]).view(np.float32)
            self._count[rows] = at + 1
            is_due = (found[:, 2] > 0) | self._is_watched[rows] | (at + 1 == _KEPT)
            for row in rows[is_due].tolist():
                if self._take(row):
                    self.seat(row, None)
                    ended.append(row)
        return ended

    def flush(self) -> None:
        """Let all completions take what was read."""
        for row in np.flatnonzero(self._count).tolist():
            self._take(row)

    def _take(self, row: int) -> bool:
        sequence, count = self._sequences[row], int(self._count[row])
        assert sequence is not None
        self._count[row] = 0
        tokens, logprobs = self._tokens[row, :count], self._logprobs[row, :count]
        return sequence.take_all(tokens.tolist(), logprobs.tolist(), self._version)
