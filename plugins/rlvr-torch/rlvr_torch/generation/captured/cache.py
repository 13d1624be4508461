"""Keys and values in buffers that stay: what a captured pass reads and writes.

Rows, pages, prompts and their slots come in powers of two and only grow, so that few shapes occur
and memory moves seldom. All that changes from pass to pass is the contents of tensors.

Shapes: R rows, H query heads, K key heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from rlvr_torch.generation.cache.kv_cache import KVCache
from rlvr_torch.generation.cache.prompts import STEP
from rlvr_torch.generation.captured.attention import DecodeAttention, Past, power
from rlvr_torch.generation.captured.pages import PAGE, Pages
from rlvr_torch.models.interface import Heads

AttentionOf: TypeAlias = Callable[[Sequence[Heads], torch.device], DecodeAttention]


class StaticCache(KVCache):
    """
    The cache of an engine's batches, one after the other.

    `advance` prepares a pass; the pass itself calls `open_pass`, then `attend` once a layer.

    Attributes:
        births: Clock of each row's first pass, (rows there is room for, 1).
        clock_at: The clock of the pass, (1,).
    """

    def __init__(
        self,
        heads: Sequence[Heads],
        *,
        dtype: torch.dtype,  # type keys and values are kept in
        device: torch.device,
        attention: AttentionOf,
        send: Callable[[np.ndarray, Tensor], None],  # as `Capture.send`
    ) -> None:
        super().__init__(heads, dtype=dtype, device=device, whole=_whole)
        self._attention = attention(heads, device)
        self._pages = Pages(device, send)
        self._due = 0  # clock at which a row needs its next page
        shapes = [(self._pages.count, layer.keys, PAGE, layer.width) for layer in heads]
        self._keys, self._values = (
            [torch.zeros(shape, dtype=dtype, device=device) for shape in shapes] for _ in range(2)
        )  # of each layer, (pages, K, PAGE, D)
        self.clock_at = torch.zeros(1, dtype=torch.int64, device=device)
        self.births = self._starts = self.clock_at.new_zeros(0, 1)

    def restart(self) -> None:
        """Forget all rows and prompts, and keep the memory."""
        if self.living:  # of a batch that was given up, perhaps for numbers that are not finite
            for layer in (*self._keys, *self._values):
                layer.zero_()
        self._owner = [None] * len(self._owner)
        self.rows = self._clock = 0
        self._pages.clear()
        self.prompts.close_unused(set(), set())
        self._is_seated = False

    @property
    def clock(self) -> int:
        """Passes since the last restart."""
        return self._clock

    @property
    def living(self) -> list[int]:
        """Rows of this pass that a completion has."""
        return [row for row in range(self.rows) if self._owner[row] is not None]

    @property
    def shape(self) -> tuple[int, ...]:
        """All sizes that a pass depends on."""
        return (self.rows, self._span, self._width, *self._attention.shape)

    @property
    def memory(self) -> tuple[int, ...]:
        """Sizes of its memory; it lies elsewhere once they have changed."""
        return (self._pages.count, *self._pages.table.shape, *self.prompts.room)

    @property
    def size(self) -> int:
        """Bytes that keys and values take."""
        stores = (self._keys, self._values, self.prompts.keys, self.prompts.values)
        return sum(layer.nbytes for store in stores for layer in store)

    def _grow(self, slots: int) -> None:
        rows = len(self._owner)
        self._pages.reserve(rows, 0)
        self.births, self._starts = (self.clock_at.new_zeros(rows, 1) for _ in range(2))
        self._is_seated = False

    def end(self, row: int) -> None:
        super().end(row)
        self._pages.free(row)

    def move(self, source: int, target: int) -> None:
        self._owner[target], self._owner[source] = self._owner[source], None
        self._born[target] = self._born[source]
        self._pages.move(source, target)
        self._is_seated = False

    def resize(self, rows: int) -> None:
        self.rows = rows
        self._is_seated = False

    def advance(self) -> None:  # type: ignore[override]
        """Prepare one more token a row, before each decoding pass."""
        self._width = power(max(PAGE, self._least, self._clock - self._oldest + 1))
        self._pages.reserve(0, self._width // PAGE)
        if not self._is_seated:
            self._seat()
        if self._clock >= self._due:
            self._turn_pages()
        self._span = self.prompts.span
        self.clock_at.fill_(self._clock)
        self._clock += 1

    def _turn_pages(self) -> None:
        """Give rows the pages that their next tokens go to."""
        parts = {row: (self._clock - self._born[row]) // PAGE + 1 for row in self.living}
        if lacking := self._pages.lack(parts):
            # Two pages are nobody's.
            lacking = power(self._pages.count - 2 + lacking) + 2 - self._pages.count
            for store in (self._keys, self._values):
                for layer, pages in enumerate(store):  # one is there twice, as the plan counts
                    store[layer] = pages.new_zeros(len(pages) + lacking, *pages.shape[1:])
                    store[layer][: len(pages)] = pages
            self._pages.add(lacking)
        self._pages.hold(parts)
        ends = (self._born[row] + count * PAGE for row, count in parts.items())
        self._due = min(ends, default=self._clock + 1)

    def _seat(self) -> None:
        owner, lengths = self._owner[: self.rows], self.prompts.lengths
        self.prompts.reserve(self._attention.seat(owner, len(self._owner)))
        mine = [0 if place is None else lengths[place] for place in owner]
        self._starts[: self.rows, 0] = torch.tensor(mine)
        self.births[: self.rows, 0] = torch.tensor(self._born[: self.rows])
        self._is_seated = True
        self._due = self._clock

    def open_pass(self) -> Tensor:
        """Begin a pass; gives the positions of its tokens, (R, 1)."""
        # A row that has ended may be older than all others.
        ages = (self.clock_at - self.births[: self.rows]).clamp(0, self._width - 1)
        pages = self._pages.table[: self.rows, : self._width // PAGE]
        self._past = Past(
            rows=self.rows,
            span=self._span,
            width=self._width,
            lengths=self._starts[: self.rows],
            ages=ages,
            pages=pages,
            prompt_keys=self.prompts.keys,
            prompt_values=self.prompts.values,
            keys=self._keys,
            values=self._values,
        )
        self._write = {}
        page = pages.gather(1, ages // PAGE).long()  # (R, 1)
        for keys in {layer.keys for layer in self._heads}:
            heads = page * keys + torch.arange(keys, device=self._device)
            self._write[keys] = (heads * PAGE + ages % PAGE).flatten()  # (R * K,)
        self._attention.open(self._past)
        return self._past.positions

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        heads = self._heads[layer]
        self._put(self._keys[layer], k, heads)
        self._put(self._values[layer], v, heads)
        return self._attention.attend(layer, q.to(self._dtype), sinks).to(v.dtype)


def _whole(slots: int) -> int:
    return max(2 * STEP, power(slots))
