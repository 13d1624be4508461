"""Keys and values of a running batch in which no two rows share a prompt.

A row's prompt and what it generated stand beside each other, and the texts of all rows end at the
same slot: every row writes its next key there, and one matrix product a row and head reads all it
may see. Nothing of it depends on the lengths of the prompts; slots before a row's first are
masked. Every kind of `Heads` is here; the results are those of `attention.attend_over`.

Shapes: R rows, P prompts, S their longest length, N slots that are looked at, K key heads, Q query
heads of each, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlvr_torch.models.attention import attend_over, causal
from rlvr_torch.models.interface import Heads

_SPARE_SLOTS = 64


class RowCache:
    """
    The cache of one batch, used like `KVCache`: the place of a row's prompt is the row itself.

    Attributes:
        rows: Rows that take part in decoding; the first ones.
        ends: Final hidden state (C,) of the last token of each row's prompt; None until read.
    """

    def __init__(
        self,
        heads: Sequence[Heads],
        *,
        rows: int,
        longest: int,
        tokens: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """
        Make room.

        Args:
            heads: The attention of each layer.
            rows: Most rows there will be.
            longest: Tokens of the longest prompt there will be.
            tokens: Most that any row will generate.
            dtype: Type keys and values are kept in.
            device: Where they are kept.
        """
        self._heads = heads
        self._dtype = dtype
        self._device = device
        self.rows = rows
        self.ends: list[Tensor | None] = [None] * rows
        self._longest = longest
        self._lengths = [0] * rows  # of each row's prompt
        self._starts: list[int | None] = [None] * rows  # first slot of each living row
        self._is_clean = [False] * rows  # what lies before it is finite
        self._clock = longest - 1  # slot of the present pass
        self._slots = longest + min(tokens, _SPARE_SLOTS)
        shapes = [(rows, layer.keys, self._slots, layer.width) for layer in heads]
        self._keys = [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
        self._values = [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
        self._first = torch.zeros(rows, dtype=torch.int64, device=device)  # (R,) of all rows
        self._reading: list[int] = []
        self._masks: dict[int | None, Tensor] = {}  # causal masks of the prefill under way
        self._bias: Tensor | None = None  # (R, 1, 1, slots): 0 or -inf; None: every row sees all
        self._low = 0
        self._is_seated = False

    # Prompts

    def open(self, row: int, tokens: bytes, length: int) -> tuple[int, bool]:
        """Where a prompt for this row has its place, and whether it is to be read there: always."""
        self._lengths[row] = length
        return row, True

    def read_prompts(self, places: Sequence[int], tokens: int) -> None:
        """The next prefill holds the prompts of these places, padded to so many tokens."""
        self._reading = list(places)
        windows = {layer.window for layer in self._heads}
        self._masks = {
            window: causal(tokens, self._device, window)
            for window in windows
            if window is not None and window < tokens
        }

    def attend_prompts(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        """Causal attention of a prefill (P, H, S, D); keys and values are kept."""
        heads, end, rows = self._heads[layer], self._clock + 1, self._reading
        lengths = [self._lengths[row] for row in rows]
        is_run = rows == list(range(rows[0], rows[0] + len(rows))) and len(set(lengths)) == 1
        for store, new in ((self._keys[layer], k), (self._values[layer], v)):
            if is_run:
                store[rows[0] : rows[-1] + 1, :, end - lengths[0] : end].copy_(new)
                continue
            for row, length, one in zip(rows, lengths, new, strict=True):
                store[row, :, end - length : end].copy_(one[:, :length])
        for row, length in zip(rows, lengths, strict=True):
            if not self._is_clean[row] and length < end:
                # What is masked is multiplied by 0 all the same: it must be finite.
                self._keys[layer][row, :, : end - length] = 0
                self._values[layer][row, :, : end - length] = 0
        return attend_over(heads, q, k, v, self._masks.get(heads.window), sinks)

    def close_unused(self, wanted: bytes) -> None:
        """Nothing: a row that is taken again overwrites its prompt."""

    # Rows

    def begin(self, row: int, place: int) -> None:
        """A completion of the prompt at a place takes the row, which it is."""
        start = self._clock + 1 - self._lengths[place]
        self._starts[row] = self._first[row] = start
        self._is_clean[row] = True
        self._is_seated = False

    def end(self, row: int) -> None:
        """The row's completion has ended."""
        self._starts[row] = None
        self._is_seated = False

    def move(self, source: int, target: int) -> None:
        """A row goes to a free one's place."""
        self._starts[target], self._starts[source] = self._starts[source], None
        self._first[target] = self._first[source]
        for store in (self._keys, self._values):
            for layer in store:
                layer[target, :, : self._clock + 1] = layer[source, :, : self._clock + 1]
        self._is_seated = False

    def resize(self, rows: int) -> None:
        """Decode the first `rows` rows only."""
        self.rows = rows
        self._is_seated = False

    # Decoding

    def advance(self) -> Tensor:
        """
        Make ready for one more token a row; call before each decoding pass.

        Returns:
            Position of each row's token, (R, 1).
        """
        self._clock += 1
        if self._clock >= self._slots:
            self._make_room()
        if not self._is_seated:
            self._seat()
        return (self._clock - self._first[: self.rows])[:, None]

    @property
    def shape(self) -> tuple[int, ...]:
        """All sizes that a decoding pass depends on."""
        return self.rows, self._clock + 1 - self._low

    def hold(self, name: str, value: Tensor) -> Tensor:
        """The value."""
        return value

    @property
    def _oldest(self) -> int:
        return min((start for start in self._starts if start is not None), default=self._clock)

    def _seat(self) -> None:
        """What depends on who sits where, but not on the clock."""
        self._low = self._oldest
        self._bias = None
        if any(start not in (None, self._low) for start in self._starts):
            index = torch.arange(self._slots, device=self._device)
            is_before = index < self._first[: self.rows, None]  # (R, slots)
            bias = torch.zeros(is_before.shape, device=self._device)
            self._bias = bias.masked_fill_(is_before, float("-inf"))[:, None, None]
        self._is_seated = True

    def _make_room(self) -> None:
        """Let go of what no living row sees, with slots for as many more passes."""
        low = self._oldest
        span = self._clock - low  # slots that are kept
        clock = max(span, self._longest)  # a prompt to come ends there at the earliest
        shift = self._clock - clock
        self._slots = clock + max(_SPARE_SLOTS, span // 2)
        for store in (self._keys, self._values):
            for layer, old in enumerate(store):
                new = old.new_zeros(*old.shape[:2], self._slots, old.shape[3])
                new[:, :, clock - span : clock] = old[:, :, low : low + span]
                store[layer] = new
        self._clock = clock
        self._first -= shift
        self._starts = [None if start is None else start - shift for start in self._starts]
        self._is_seated = False

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        """Attention of one new token a row, q (R, H, 1, D), k and v (R, K, 1, D), over its past."""
        heads, rows, slot, low = self._heads[layer], self.rows, self._clock, self._low
        keys, values = self._keys[layer], self._values[layer]
        if rows < len(keys):
            keys, values = keys[:rows], values[:rows]
        keys.select(2, slot).copy_(k.select(2, 0))
        values.select(2, slot).copy_(v.select(2, 0))
        if heads.window is not None:
            low = max(low, slot + 1 - heads.window)
        count = slot + 1 - low  # N
        past_k = keys.view(-1, self._slots, heads.width).narrow(1, low, count)  # (R * K, N, D)
        past_v = values.view(-1, self._slots, heads.width).narrow(1, low, count)
        q = q.reshape(-1, heads.queries // heads.keys, heads.width).to(self._dtype)  # (R * K, Q, D)
        scores = q.new_empty(q.shape[0], q.shape[1], count)
        scores = scores.baddbmm_(q, past_k.transpose(1, 2), beta=0, alpha=heads.scale).float()
        if heads.softcap:
            scores = heads.softcap * torch.tanh(scores / heads.softcap)
        if self._bias is not None:
            scores.unflatten(0, (rows, -1)).add_(self._bias[..., low : slot + 1])
        if sinks is not None:
            sink = sinks.float().view(1, heads.keys, -1, 1).expand(rows, -1, -1, 1)
            scores = torch.cat([scores, sink.flatten(0, 1)], dim=2)
        shares = scores.softmax(dim=2).to(self._dtype)
        if sinks is not None:
            shares = shares[:, :, :count]
        mixed = torch.bmm(shares, past_v)  # (R * K, Q, D)
        return mixed.view(rows, heads.queries, 1, heads.width).to(v.dtype)
