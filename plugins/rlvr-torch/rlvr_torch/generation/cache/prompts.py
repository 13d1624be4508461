"""Keys and values of prompts: stored once, however many completions read them.

A prompt has a place for as long as a completion in the making, or one that waits for a row, needs
it. Keys are kept transposed, which makes scores of many rows one fast matrix product.

Shapes: P places, S slots of a place, K key heads, D width of a head, C width of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlvr_torch.models.interface import Heads

STEP = 16
"""Slots that are looked at are a multiple of this."""


class Prompts:
    """
    Places of prompts; padded on the right to S slots, padding is finite.

    Attributes:
        keys: Keys of each layer, (P, K, D, S).
        values: Values of each layer, (P, K, S, D).
        lengths: Tokens of each place's prompt; 0 where the place is free.
        ends: Final hidden state (C,) of the prompt's last token, by place, once it was read.
    """

    def __init__(
        self,
        heads: Sequence[Heads],  # the attention of each layer
        dtype: torch.dtype,  # type they are kept in
        device: torch.device,  # where they are kept
        whole: Callable[[int], int] | None = None,  # rounds slots up; by default `whole_steps`
    ) -> None:
        self._whole = whole or whole_steps
        self.lengths: list[int] = []
        self.ends: list[Any] = []
        self._slots = 0
        self._by_name: dict[Hashable, int] = {}
        empty = partial(torch.empty, dtype=dtype, device=device)
        self.keys = [empty(0, layer.keys, layer.width, 0) for layer in heads]
        self.values = [empty(0, layer.keys, 0, layer.width) for layer in heads]

    @property
    def places(self) -> int:
        return max((i + 1 for i, length in enumerate(self.lengths) if length), default=1)

    @property
    def used(self) -> set[int]:
        """Places that hold a prompt."""
        return {place for place, length in enumerate(self.lengths) if length}

    @property
    def room(self) -> tuple[int, int]:
        """Places and slots of each; another value means another place in memory."""
        return len(self.lengths), self._slots

    @property
    def span(self) -> int:
        """Slots that hold the longest prompt, rounded up."""
        return self._whole(max(self.lengths))

    def reserve(self, places: int, tokens: int = 0) -> None:
        slots = max(self._slots, self._whole(tokens))
        if places > len(self.lengths) or slots > self._slots:
            self._grow(max(places, len(self.lengths)), slots)

    def make_room(self, lengths: Mapping[Hashable, int]) -> None:
        """Make room at once for the prompts of these names that have no place yet."""
        new = sum(name not in self._by_name for name in lengths)
        if new > self.lengths.count(0):
            self.reserve(max(len(self._by_name) + new, 2 * len(self.lengths)))
        self.reserve(0, max(lengths.values()))

    def open(self, name: Hashable, length: int) -> tuple[int, bool]:
        """The place of a prompt of that name, and whether it is still to be read there."""
        if (known := self._by_name.get(name)) is not None:
            return known, False
        place = self.lengths.index(0)  # free since `make_room`; what it held is overwritten
        self.lengths[place] = length
        self._by_name[name] = place
        return place, True

    def close_unused(self, used: set[int], wanted: set[Hashable]) -> None:
        """Free all places except the used ones and those of the wanted prompts."""
        for name, place in list(self._by_name.items()):
            if place not in used and name not in wanted:
                del self._by_name[name]
                self.lengths[place], self.ends[place] = 0, None

    def write(self, layer: int, places: slice | Tensor, keys: Tensor, values: Tensor) -> None:
        """Keep the keys and values (P', K, S', D) of prompts that were just read."""
        count, dtype = keys.shape[2], self.keys[layer].dtype
        self.keys[layer][places, :, :, :count] = keys.transpose(2, 3).to(dtype)
        self.values[layer][places, :, :count] = values.to(dtype)
        # Padding is masked but multiplied by 0 all the same: it must be finite.
        self.keys[layer][places, :, :, count:] = 0
        self.values[layer][places, :, count:] = 0

    def tidy(self, least: int) -> dict[int, int]:
        """
        Move the last prompts to free places behind the first `least`.

        Gives old and new places.
        """
        moved = {}
        used = max(least, sum(1 for length in self.lengths if length))
        names = {place: name for name, place in self._by_name.items()}
        for source in [i for i, length in enumerate(self.lengths) if length and i >= used]:
            target = self.lengths.index(0)
            for store in (self.keys, self.values):
                for layer in store:
                    layer[target] = layer[source]
            self.lengths[target], self.lengths[source] = self.lengths[source], 0
            self.ends[target], self.ends[source] = self.ends[source], None
            self._by_name[names[source]] = moved[source] = target
        return moved

    def _grow(self, places: int, slots: int) -> None:
        more = places - len(self.lengths)
        self.lengths += [0] * more
        self.ends += [None] * more
        self._slots = slots
        for layer, (k, v) in enumerate(zip(self.keys, self.values, strict=True)):
            self.keys[layer] = k.new_zeros(places, *k.shape[1:3], slots)
            self.keys[layer][: k.shape[0], :, :, : k.shape[3]] = k
            self.values[layer] = v.new_zeros(places, v.shape[1], slots, v.shape[3])
            self.values[layer][: v.shape[0], :, : v.shape[2]] = v


def whole_steps(slots: int) -> int:
    """So many slots or a few more: a multiple of the step of all widths (see `KVCache`)."""
    return -(-slots // STEP) * STEP
