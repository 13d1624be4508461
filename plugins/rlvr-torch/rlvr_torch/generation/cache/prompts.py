"""Keys and values of prompts: stored once, however many completions read them.

A prompt has a place for as long as a completion in the making, or one that waits for a row, needs
it. Keys are kept transposed, which makes scores of many rows one fast matrix product.

Shapes: P places, S slots of a place, K key heads, D width of a head, C width of the model.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import torch
from torch import Tensor

from rlvr_torch.models.interface import Heads

_STEP = 32  # slots of a place are a multiple of this: see `KVCache`


class Prompts:
    """
    Places of prompts; padded on the right to S slots, padding is finite.

    Attributes:
        keys: Keys of each layer, (P, K, D, S).
        values: Values of each layer, (P, K, S, D).
        lengths: Tokens of each place's prompt; 0 where the place is free.
        ends: Final hidden state (C,) of the prompt's last token, by place; None until it was read.
    """

    def __init__(self, heads: Sequence[Heads], dtype: torch.dtype, device: torch.device) -> None:
        self.lengths: list[int] = []
        self.ends: list[Tensor | None] = []
        self._slots = 0
        self._by_name: dict[Hashable, int] = {}
        keys = [(0, layer.keys, layer.width, 0) for layer in heads]
        values = [(0, layer.keys, 0, layer.width) for layer in heads]
        self.keys = [torch.empty(shape, dtype=dtype, device=device) for shape in keys]
        self.values = [torch.empty(shape, dtype=dtype, device=device) for shape in values]

    @property
    def places(self) -> int:
        """Places up to the last one in use."""
        return max((i + 1 for i, length in enumerate(self.lengths) if length), default=1)

    @property
    def size(self) -> int:
        """Numbers in all places of a layer: changes whenever they are put elsewhere in memory."""
        return self.keys[0].numel()

    @property
    def span(self) -> int:
        """Slots that hold the longest prompt, in whole steps."""
        return _steps(max(self.lengths))

    def find(self, name: Hashable) -> int | None:
        """The place of a prompt that was opened before."""
        return self._by_name.get(name)

    def reserve(self, places: int, tokens: int = 0) -> None:
        """Make room for so many prompts of so many tokens."""
        slots = max(self._slots, _steps(tokens))
        if places > len(self.lengths) or slots > self._slots:
            self._grow(max(places, len(self.lengths)), slots)

    def make_room(self, lengths: Mapping[Hashable, int]) -> None:
        """Make room at once for prompts of these names, some of which may have a place."""
        new = sum(name not in self._by_name for name in lengths)
        if new > self.lengths.count(0):
            self.reserve(max(len(self._by_name) + new, 2 * len(self.lengths)))
        self.reserve(0, max(lengths.values()))

    def open(self, name: Hashable, length: int) -> int:
        """A place for a prompt; what it held before is overwritten. `make_room` comes before."""
        place = self.lengths.index(0)
        self.lengths[place] = length
        self._by_name[name] = place
        return place

    def close_unused(self, used: set[int], wanted: set[Hashable]) -> None:
        """Free all places but those in use and those of the wanted prompts."""
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
        """Fill free places with the last ones, but for the first `least`; gives what went where."""
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
        for layer, old in enumerate(self.keys):
            new = old.new_zeros(places, *old.shape[1:3], slots)
            new[: old.shape[0], :, :, : old.shape[3]] = old
            self.keys[layer] = new
        for layer, old in enumerate(self.values):
            new = old.new_zeros(places, old.shape[1], slots, old.shape[3])
            new[: old.shape[0], :, : old.shape[2]] = old
            self.values[layer] = new


def _steps(tokens: int) -> int:
    return -(-tokens // _STEP) * _STEP
