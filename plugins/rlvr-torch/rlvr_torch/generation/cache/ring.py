"""Keys and values of what rows generate: a ring of slots that all rows write at the same place.

A clock counts decoding passes. Every row writes the slot `clock modulo slots`, so one write serves
the batch, whenever its rows began. What a row may see of the ring follows from the clock at which
it began; a row that takes a finished one's place needs nothing cleared. The ring grows when the
oldest living row is as old as the ring is long.

Shapes: R rows, N slots, K key heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlvr_torch.models.interface import Heads


class RingCache:
    """
    The slots of at most `rows` rows, one pair of tensors (R, K, N, D) a layer.

    Attributes:
        clock: Number of the present pass; -1 before the first.
        slots: Slots there are now.
        keys: Keys of each layer.
        values: Values of each layer.
    """

    def __init__(
        self,
        heads: Sequence[Heads],
        rows: int,
        slots: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        is_whole: bool = False,
    ) -> None:
        """`is_whole`: all slots are looked at from the first pass on, not only `span`."""
        self.clock = -1
        self.slots = slots
        self._born: list[int | None] = [None] * rows  # clock of a living row's first pass
        self.births = torch.zeros(rows, dtype=torch.int64, device=device)  # (R,)
        # What is masked is multiplied by 0 all the same: it must be finite. The first slots of a
        # span were written by all rows.
        new = torch.zeros if is_whole else torch.empty
        shapes = [(rows, layer.keys, slots, layer.width) for layer in heads]
        self.keys = [new(shape, dtype=dtype, device=device) for shape in shapes]
        self.values = [new(shape, dtype=dtype, device=device) for shape in shapes]

    def begin(self, row: int) -> None:
        """A new completion takes the row; its first token is read by the next pass."""
        self._born[row] = self.clock + 1
        self.births[row] = self.clock + 1

    def end(self, row: int) -> None:
        """Nobody reads the row any more."""
        self._born[row] = None

    def move(self, source: int, target: int) -> None:
        """A living row goes to the place of a finished one."""
        for store in (self.keys, self.values):
            for layer in store:
                layer[target] = layer[source]
        self.births[target] = self.births[source]
        self._born[target], self._born[source] = self._born[source], None

    def advance(self) -> None:
        """Begin the next pass; makes room where the oldest row needs it."""
        self.clock += 1
        if self.clock - self._oldest >= self.slots:
            self._grow()

    @property
    def _oldest(self) -> int:
        return min((born for born in self._born if born is not None), default=self.clock)

    @property
    def slot(self) -> int:
        """Where this pass writes."""
        return self.clock % self.slots

    @property
    def is_even(self) -> bool:
        """Whether every living row sees the whole span: all began together, and it is their age."""
        births = {born for born in self._born if born is not None}
        return len(births) <= 1 and self._oldest % self.slots <= self.slot

    @property
    def span(self) -> slice:
        """Slots that hold all that any living row may see; of one piece."""
        low = self._oldest % self.slots
        return slice(low, self.slot + 1) if low <= self.slot else slice(0, self.slots)

    def ages(self, span: slice) -> Tensor:
        """How many passes ago each slot of the span was written, (N',)."""
        index = torch.arange(span.start, span.stop, device=self.births.device)
        return (self.clock - index) % self.slots

    def _grow(self) -> None:
        before, self.slots = self.slots, 2 * self.slots
        passes = torch.arange(self.clock - before, self.clock, device=self.births.device)
        for store in (self.keys, self.values):
            for layer, old in enumerate(store):
                new = old.new_zeros(*old.shape[:2], self.slots, old.shape[3])
                new[:, :, passes % self.slots] = old[:, :, passes % before]
                store[layer] = new
