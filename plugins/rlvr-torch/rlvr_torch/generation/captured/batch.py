"""A running batch whose passes are captured, and whose results are read one pass late.

While the device draws, the host looks at what was drawn the pass before. A row that has ended draws
one token more, which is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from rlvr_torch.generation.captured.arrivals import Arrivals
from rlvr_torch.generation.captured.attention import power
from rlvr_torch.generation.captured.cache import StaticCache
from rlvr_torch.generation.captured.graphs import Capture
from rlvr_torch.generation.captured.memory import DecodeMemory
from rlvr_torch.generation.decode_batch import DecodeBatch
from rlvr_torch.generation.decode_weights import DecodeWeights
from rlvr_torch.generation.sequence import RunningSequence
from rlvr_torch.models.interface import Net


class CapturedBatch(DecodeBatch):
    """Decodes in the memory of its engine, which it asks for when sequences come."""

    def __init__(
        self,
        net: Net,
        weights: DecodeWeights,
        *,
        capture: Capture,
        lend: Callable[[DecodeBatch], DecodeMemory],
        is_late: bool = True,  # read results a pass late
        **settings: Any,  # as of `DecodeBatch`
    ) -> None:
        self._capture, self._lend, self._is_late = capture, lend, is_late
        self._memory: DecodeMemory | None = None
        super().__init__(net, weights, **settings)

    def _clear(self) -> None:
        self._rows = []
        self._memory = None
        self._arrivals = Arrivals()

    def _have_memory(self) -> None:
        """Take the engine's memory for this batch, unless it has it."""
        if self._memory is None or not self._memory.belongs_to(self):
            self._rows, self._arrivals = [], Arrivals()
            self._memory = self._lend(self)

    @property
    def memory(self) -> DecodeMemory:
        """The memory that holds its rows; set once it has drawn."""
        assert self._memory is not None
        return self._memory

    @property
    def _cache(self) -> StaticCache:  # type: ignore[override]
        return self.memory.cache

    @property
    def _draws(self) -> DecodeMemory:  # type: ignore[override]
        return self.memory

    @property
    def _drawn(self) -> Tensor:  # type: ignore[override]
        return self.memory.drawn

    @contextmanager
    def at_work(self, version: int | None = None) -> Iterator[None]:
        with super().at_work(version):
            if self._memory is not None:
                self._memory.look_for_weights()
            yield

    def settle(self) -> list[RunningSequence]:
        self._receive(len(self._arrivals))
        self._arrivals.flush()
        ended, self._ended = self._ended, []
        return ended

    def _draw_all(self, version: int | None) -> None:
        self._have_memory()
        unread = len(self._arrivals)
        try:
            super()._draw_all(version)
        except torch.OutOfMemoryError:
            self.memory.is_whole = False
            raise
        left = len(self._arrivals)  # fewer where all were read before rows were moved
        self._receive(min(unread, left) if self._is_late else left)

    def _pass(self, version: int | None) -> None:
        memory = self.memory
        memory.advance()
        count = memory.cache.rows
        self._arrivals.send(range(count), version, self._capture.fetch(memory.found[:count]))

    def _draw(self, logits: Tensor, rows: Sequence[int], version: int | None) -> None:
        for row in rows:
            sequence = self._rows[row]
            assert sequence is not None
            self._arrivals.seat(row, sequence)
            self.memory.know_ends(sequence.ends)
        found = self.memory.first(logits, rows)
        self._arrivals.send(rows, version, self._capture.fetch(found))

    def _reserve(self, rows: int) -> None:
        self._rows += [None] * (rows - len(self._rows))
        self.memory.reserve(rows)
        self._arrivals.reserve(rows)

    def _whole(self, rows: int) -> int:
        return max(2, power(rows))

    def _leave(self, row: int) -> None:
        super()._leave(row)
        self._arrivals.seat(row, None)

    def _close_gaps(self, left: int) -> None:
        self._receive(len(self._arrivals))  # rows are about to be moved
        self._arrivals.flush()
        super()._close_gaps(left)
        for row, sequence in enumerate(self._rows):
            self._arrivals.seat(row, sequence)

    def _receive(self, passes: int) -> None:
        for row in self._arrivals.read(passes):
            sequence = self._rows[row]
            assert sequence is not None
            self._leave(row)
            self._ended.append(sequence)
