"""Keys and values of a running batch: prompts read once, and a ring of what each row generated.

A group's rows share their prompt's keys: they are stored, and read, once for the whole group
(attention over the prompt is one matrix product for each prompt, not one vector product for each
row). Every kind of `Heads` is here; the results are those of `attention.attend_over`.

Shapes: P prompts, S their longest length, R rows, N slots of the ring that are looked at, H query
heads, K key heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlvr_torch.generation.cache.group_rows import GroupRows
from rlvr_torch.generation.cache.prompts import Prompts
from rlvr_torch.generation.cache.ring import RingCache
from rlvr_torch.models.attention import attend_over, causal
from rlvr_torch.models.interface import Heads

_FIRST_SLOTS = 64
_PROMPT_STEP = 64  # prompt lengths of fixed shapes are multiples of this


class KVCache:
    """
    The cache of one batch. `attend_prompts` is the attention of a prefill, `attend` of decoding.

    With `is_static` the shapes that `attend` works on take few different values (`shape` names
    them), and all that changes between passes of one shape is the contents of tensors: what a
    CUDA graph needs.

    Attributes:
        prompts: The places of prompts.
        rows: Rows that take part in decoding; the first ones.
    """

    def __init__(
        self,
        heads: Sequence[Heads],
        *,
        rows: int,
        places: int,
        longest: int,
        tokens: int,
        dtype: torch.dtype,
        device: torch.device,
        is_static: bool = False,
    ) -> None:
        """
        Make room.

        Args:
            heads: The attention of each layer.
            rows: Most rows there will be.
            places: Prompts there is room for at first.
            longest: Tokens of a prompt there is room for at first.
            tokens: Most that any row will generate.
            dtype: Type keys and values are kept in.
            device: Where they are kept.
            is_static: See above.
        """
        self._heads = heads
        self._dtype = dtype
        self._device = device
        self._is_static = is_static
        self.rows = rows
        if is_static:
            places, longest = _power(places), _multiple(longest)
        self.prompts = Prompts(heads, places, longest, dtype, device)
        slots = _FIRST_SLOTS if is_static else min(tokens, _FIRST_SLOTS)
        self.ring = RingCache(heads, rows, slots, dtype, device, is_whole=is_static)
        self._owner: list[int | None] = [None] * rows
        self._reading: slice | Tensor = slice(0, 0)
        self._masks: dict[int | None, Tensor] = {}  # causal masks of the prefill under way
        self._biases: dict[int | None, Tensor | None] = {}  # of each window: (R, 1, 1, S + N)
        self._held: dict[tuple[str, tuple[int, ...]], Tensor] = {}
        self._windows = {layer.window for layer in heads}
        self._slot = torch.zeros(1, dtype=torch.int64, device=device)
        self._span = slice(0, 0)
        self._is_seated = False

    # Prompts

    def open(self, row: int, tokens: bytes, length: int) -> tuple[int, bool]:
        """The place of a prompt that this row wants, and whether it is still to be read there."""
        place = self.prompts.find(tokens)
        return (self.prompts.open(tokens, length), True) if place is None else (place, False)

    @property
    def ends(self) -> list[Tensor | None]:
        """Final hidden state (C,) of the last token of each place's prompt; None until read."""
        return self.prompts.ends

    def close_unused(self, wanted: bytes) -> None:
        """Free the places of prompts that no row reads, but for one prompt."""
        self.prompts.close_unused(self.places_in_use, wanted)

    def read_prompts(self, places: Sequence[int], tokens: int) -> None:
        """The next prefill holds the prompts of these places, padded to so many tokens."""
        first, count = places[0], len(places)
        is_run = list(places) == list(range(first, first + count))
        self._reading = (
            slice(first, first + count) if is_run else torch.tensor(places, device=self._device)
        )
        self._masks = {
            window: causal(tokens, self._device, window)
            for window in self._windows
            if window is not None and window < tokens
        }

    def attend_prompts(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        """Causal attention of a prefill (P', H, S', D); keys and values are kept."""
        heads = self._heads[layer]
        self.prompts.write(layer, self._reading, k, v)
        return attend_over(heads, q, k, v, self._masks.get(heads.window), sinks)

    # Rows

    def begin(self, row: int, place: int) -> None:
        """A completion of the prompt at a place takes the row."""
        self._owner[row] = place
        self.ring.begin(row)
        self._is_seated = False

    def end(self, row: int) -> None:
        """The row's completion has ended."""
        self._owner[row] = None
        self.ring.end(row)

    def move(self, source: int, target: int) -> None:
        """A row goes to a free one's place."""
        self._owner[target], self._owner[source] = self._owner[source], None
        self.ring.move(source, target)
        self._is_seated = False

    def resize(self, rows: int) -> None:
        """Decode the first `rows` rows only; also drops the gaps between prompts."""
        self.rows = rows
        self._is_seated = False
        moved = self.prompts.tidy()
        self._owner = [None if p is None else moved.get(p, p) for p in self._owner]

    @property
    def places_in_use(self) -> set[int]:
        """Places whose prompt some row reads."""
        return {place for place in self._owner if place is not None}

    # Decoding

    def advance(self) -> Tensor:
        """
        Make ready for one more token a row; call before each decoding pass.

        Returns:
            Position of each row's token, (R, 1).
        """
        self.ring.advance()
        if not self._is_seated:
            self._seat()
        if self._is_static:
            self._slot.fill_(self.ring.slot)
        self._span = slice(0, self.ring.slots) if self._is_static else self.ring.span
        age = (self.ring.clock - self.ring.births[: self.rows])[:, None]  # (R, 1)
        positions = self._lengths + age  # (R, 1)
        self._look(age, positions)
        return positions

    @property
    def shape(self) -> tuple[int, ...]:
        """All sizes and places in memory that a decoding pass depends on."""
        span = self._span.stop - self._span.start
        return (self.rows, *self._group_rows.shape, self._slots, span, self.prompts.size)

    def hold(self, name: str, value: Tensor) -> Tensor:
        """The value; with `is_static` always in the same place in memory, for each shape."""
        if not self._is_static:
            return value
        kept = self._held.setdefault((name, tuple(value.shape)), value)
        return kept if kept is value else kept.copy_(value)

    def _seat(self) -> None:
        """The tables that depend on who sits where, but not on the clock."""
        owner, lengths = self._owner[: self.rows], self.prompts.lengths
        places, most = self.prompts.places, 0
        self._slots = self.prompts.longest
        if self._is_static:
            places, self._slots = _power(places), _multiple(self._slots)
            most = _power(max(owner.count(place) for place in self.places_in_use))
        self._group_rows = GroupRows(owner, places, most, self._device, is_static=self._is_static)
        self._group_rows.of_row = self.hold("of_row", self._group_rows.of_row)
        self._group_rows.of_seat = self.hold("of_seat", self._group_rows.of_seat)
        mine = [lengths[0 if place is None else place] for place in owner]
        self._lengths = torch.tensor(mine, device=self._device)[:, None]  # (R, 1)
        self._index = torch.arange(self._slots, device=self._device)  # (S,)
        self._sees_prompt = self._index < self._lengths  # (R, S)
        self._is_ragged = min(mine) < self._slots or self._is_static
        self._is_seated = True

    def _look(self, age: Tensor, positions: Tensor) -> None:
        """What each row may see in this pass: 0 or -inf for each key, by window; None: all."""
        span = self._span.stop - self._span.start
        windowed = any(w is not None and self._slots + span > w for w in self._windows)
        if not self._is_ragged and self.ring.is_even and not windowed:
            self._biases = dict.fromkeys(self._windows)
            return
        back = self.ring.ages(self._span)  # (N,)
        sees = torch.cat([self._sees_prompt, back <= age], dim=1)  # (R, S + N)
        whole = self._bias("all", sees) if self._is_ragged or not self.ring.is_even else None
        for window in self._windows:
            self._biases[window] = whole
            if window is None or (self._slots + span <= window and not self._is_static):
                continue
            distance = torch.cat(
                [positions - self._index, back.expand(len(positions), -1)], dim=1
            )  # (R, S + N)
            self._biases[window] = self._bias(str(window), sees & (distance < window))

    def _bias(self, name: str, sees: Tensor) -> Tensor:
        bias = torch.zeros(sees.shape, device=self._device).masked_fill_(~sees, float("-inf"))
        return self.hold(name, bias[:, None, None])  # (R, 1, 1, S + N)

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        """Attention of one new token a row, q (R, H, 1, D), k and v (R, K, 1, D), over its past."""
        heads, span = self._heads[layer], self._span
        places, slots = self._group_rows.shape[0], self._slots
        own_k = self.ring.keys[layer][: self.rows]  # (R, K, ring, D)
        own_v = self.ring.values[layer][: self.rows]
        if self._is_static:
            own_k.index_copy_(2, self._slot, k.to(self._dtype))
            own_v.index_copy_(2, self._slot, v.to(self._dtype))
        else:
            own_k.select(2, self.ring.slot).copy_(k[:, :, 0])
            own_v.select(2, self.ring.slot).copy_(v[:, :, 0])
        q = q.reshape(-1, heads.queries // heads.keys, heads.width).to(self._dtype)  # (R * K, Q, D)
        own_k, own_v = own_k[:, :, span].flatten(0, 1), own_v[:, :, span].flatten(0, 1)
        prompt_k = self.prompts.keys[layer][:places, :, :, :slots].flatten(0, 1)  # (P * K, D, S)
        prompt_v = self.prompts.values[layer][:places, :, :slots].flatten(0, 1)  # (P * K, S, D)
        grouped = self._group_rows.sit(q, heads.keys)
        prompt = self._group_rows.stand(_scaled(grouped, prompt_k, heads.scale))
        own = _scaled(q, own_k.transpose(1, 2), heads.scale)  # (R * K, Q, N)
        scores = torch.cat([prompt, own], dim=2).float()  # (R * K, Q, S + N)
        if heads.softcap:
            scores = heads.softcap * torch.tanh(scores / heads.softcap)
        bias = self._biases[heads.window]
        if bias is not None:
            scores.unflatten(0, (self.rows, -1)).add_(bias)
        if sinks is not None:
            sink = sinks.float().view(1, heads.keys, -1, 1).expand(self.rows, -1, -1, 1)
            scores = torch.cat([scores, sink.flatten(0, 1)], dim=2)
        shares = scores.softmax(dim=2).to(self._dtype)
        seated = self._group_rows.sit(shares[:, :, :slots], heads.keys)  # (P * K, G * Q, S)
        mixed = self._group_rows.stand(torch.bmm(seated, prompt_v))  # (R * K, Q, D)
        mixed.baddbmm_(shares[:, :, slots : slots + own.shape[2]], own_v)
        return mixed.view(self.rows, heads.queries, 1, heads.width).to(v.dtype)


def _scaled(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """The product of two batches of matrices, times a number."""
    scores = q.new_empty(q.shape[0], q.shape[1], k.shape[2])
    return scores.baddbmm_(q, k, beta=0, alpha=scale)


def _power(count: int) -> int:
    """The next power of two."""
    return 1 << (count - 1).bit_length()


def _multiple(tokens: int) -> int:
    return -(-tokens // _PROMPT_STEP) * _PROMPT_STEP
