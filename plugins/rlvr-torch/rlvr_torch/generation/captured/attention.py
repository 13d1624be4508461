"""Attention of a decoding pass, in a form that can be captured: shapes stay, contents change.

A row sees the tokens of its prompt, which its group shares and whose keys are stored once, and what
it drew itself. Here with torch's operators, on any device; see also `triton_attention`.

Shapes: R rows, P prompts, S slots of a prompt, N own slots, B tokens of a page, H query heads, K
key heads, D width of a head.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from attrs import frozen
from torch import Tensor

from rlvr_torch.generation.cache.group_rows import GroupRows
from rlvr_torch.generation.cache.kv_cache import attend_by_prompt, seats_of
from rlvr_torch.models.interface import Heads


@frozen(kw_only=True, eq=False)
class Past:
    """The keys and values of R rows, as one pass sees them."""

    rows: int  # R
    span: int  # S, at least the length of the longest prompt
    width: int  # N, more than the age of the oldest row
    lengths: Tensor  # tokens of each row's prompt, (R, 1); 0 where the row is free
    ages: Tensor  # own tokens before the new one, which is kept as this one, (R, 1)
    pages: Tensor  # of each row's own tokens, in their order, (R, N / B) int32
    prompt_keys: Sequence[Tensor]  # of each layer, (places, K, D, S or more)
    prompt_values: Sequence[Tensor]  # (places, K, S or more, D)
    keys: Sequence[Tensor]  # (pages, K, B, D)
    values: Sequence[Tensor]

    @property
    def positions(self) -> Tensor:
        """Positions of the new tokens, (R, 1)."""
        return self.lengths + self.ages


class DecodeAttention(ABC):
    """
    Attends to the keys of one cache.

    Between `seat` and the next, passes call `open` and then `attend` once a layer.
    """

    def __init__(self, heads: Sequence[Heads], device: torch.device) -> None:
        self._heads, self._device = heads, device

    @abstractmethod
    def seat(self, owner: Sequence[int | None], rows: int) -> int:
        """
        Take note, in memory that stays, of which place's prompt each row reads.

        Args:
            owner: The places; None: the row is free.
            rows: Rows that there is room for; `owner` has as many or fewer.

        Returns:
            Places of prompts that there must be room for.
        """

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that its operations depend on, besides `rows`, `span` and `width`."""
        return ()

    @abstractmethod
    def open(self, past: Past) -> None:
        """Begin a pass."""

    @abstractmethod
    def attend(self, layer: int, q: Tensor, sinks: Tensor | None) -> Tensor:
        """Mix values for new tokens (R, H, 1, D), whose own keys lie in the past already."""


class TableAttention(DecodeAttention):
    """By torch's operators: one product a prompt. Rows and their own pages are copied together."""

    def __init__(self, heads: Sequence[Heads], device: torch.device) -> None:
        super().__init__(heads, device)
        self._tables: dict[tuple[int, int, int], GroupRows] = {}  # each stays where it is
        self._windows = {layer.window for layer in heads}
        self._own: dict[int, Tensor] = {}  # of each number of key heads: pages, (R * K * N / B,)
        self._least = seats_of(heads)
        self._biases: dict[int | None, Tensor] = {}

    def seat(self, owner: Sequence[int | None], rows: int) -> int:
        places = max((place + 1 for place in owner if place is not None), default=1)
        counts = [0] * places
        for place in owner:
            if place is not None:
                counts[place] += 1
        prompts, most = power(places), power(max(self._least, *counts))
        made = GroupRows(owner, prompts, most, self._device, is_static=True)
        self._table = self._tables.setdefault((len(owner), prompts, most), made)
        self._table.of_row.copy_(made.of_row)
        self._table.of_seat.copy_(made.of_seat)
        return prompts

    @property
    def shape(self) -> tuple[int, ...]:
        return self._table.shape

    def open(self, past: Past) -> None:
        self._past = past
        for keys in {layer.keys for layer in self._heads}:
            each = torch.arange(keys, device=self._device)[:, None]
            self._own[keys] = (past.pages[:, None].long() * keys + each).flatten()
        device, never = past.ages.device, torch.iinfo(torch.int64).max
        prompt = torch.arange(past.span, device=device)
        prompt = prompt.where(prompt < past.lengths, never)  # (R, S)
        own = past.lengths + torch.arange(past.width, device=device)  # (R, N)
        at = torch.cat([prompt, own], dim=1)  # position of each key
        for window in self._windows:
            hidden = at > past.positions
            if window is not None:
                hidden |= at <= past.positions - window
            bias = torch.zeros(hidden.shape, device=device).masked_fill_(hidden, float("-inf"))
            self._biases[window] = bias[:, None, None]  # (R, 1, 1, S + N)

    def attend(self, layer: int, q: Tensor, sinks: Tensor | None) -> Tensor:
        heads, past, places = self._heads[layer], self._past, self._table.shape[0]
        prompt_k = past.prompt_keys[layer][:places, :, :, : past.span].flatten(0, 1)
        prompt_v = past.prompt_values[layer][:places, :, : past.span].flatten(0, 1)
        shape = (-1, past.width, heads.width)
        own_k, own_v = (
            store[layer].flatten(0, 1).index_select(0, self._own[heads.keys]).view(shape)
            for store in (past.keys, past.values)
        )
        seen = prompt_k, prompt_v, own_k.transpose(1, 2), own_v
        return attend_by_prompt(heads, q, seen, self._table, self._biases[heads.window], sinks)


def power(count: int) -> int:
    """The next power of two."""
    return 1 << (count - 1).bit_length()
