"""States of layers that keep one (`interface.State`): of each prompt, and of each row.

A prompt's states are those after its last token. All completions of the prompt begin with them.

Shapes: P prompts that are read together, S tokens of the longest, R rows, C width of the model.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import torch
from torch import Tensor

from rlvr_torch.models.interface import State, Step


class RowStates:
    """The states of one batch. `read` is the `Carry` of a prefill, `decode` that of decoding."""

    def __init__(self) -> None:
        self._prompts: dict[int, dict[int, State]] = {}  # by place and layer, each part (1, ...)
        self._rows: dict[int, State] = {}  # by layer, each part (R, ...)
        self._new: set[int] = set()  # rows that go on from their prompt
        self._reading: Sequence[tuple[int, int]] = ()

    def open(self, places: Sequence[int], lengths: Sequence[int]) -> None:
        """Name the places of the prompts that the next prefill reads, and their tokens."""
        self._reading = list(zip(places, lengths, strict=True))

    def read(self, layer: int, inputs: Tensor, step: Step) -> Tensor:
        """Outputs (P, S, C) of prompts (P, S, C), those of one length together."""
        mixed: Tensor | None = None
        for length in sorted({length for _, length in self._reading}):
            rows = [row for row, (_, own) in enumerate(self._reading) if own == length]
            part, state = step(inputs[rows, :length], {})
            if mixed is None:
                mixed = part.new_zeros(inputs.shape)
            mixed[rows, :length] = part
            for i, row in enumerate(rows):
                # Copies, for a view of one prompt keeps the states of all that were read with it.
                one = {name: value[i : i + 1].clone() for name, value in state.items()}
                self._prompts.setdefault(self._reading[row][0], {})[layer] = one
        assert mixed is not None
        return mixed

    def keep(self, places: Container[int]) -> None:
        """Forget the prompts of all other places."""
        self._prompts = {place: one for place, one in self._prompts.items() if place in places}

    def rename(self, moved: Mapping[int, int]) -> None:
        """Prompts have moved, from old places to new ones."""
        self._prompts = {moved.get(place, place): one for place, one in self._prompts.items()}

    def begin(self, row: int) -> None:
        """The row has another prompt."""
        self._new.add(row)

    def move(self, source: int, target: int) -> None:
        if source in self._new:
            self._new.add(target)
            return
        self._new.discard(target)
        for state in self._rows.values():
            for value in state.values():
                value[target] = value[source]

    def seat(self, owner: Sequence[int | None]) -> None:
        """Prepare a pass of rows with these prompts, (R,); None: the row is free."""
        if not self._prompts:
            return
        rows = [row for row in sorted(self._new) if row < len(owner) and owner[row] is not None]
        firsts = [self._prompts[place] for row in rows if (place := owner[row]) is not None]
        self._new.clear()
        for layer, like in next(iter(self._prompts.values())).items():
            before = self._rows.get(layer, {})
            self._rows[layer] = {
                name: _sized(before.get(name), value, len(owner)) for name, value in like.items()
            }
            if rows:
                for name, value in self._rows[layer].items():
                    value[rows] = torch.cat([first[layer][name] for first in firsts])

    def decode(self, layer: int, inputs: Tensor, step: Step) -> Tensor:
        """Outputs (R, 1, C) of a new token a row, (R, 1, C)."""
        mixed, self._rows[layer] = step(inputs, self._rows[layer])
        return mixed


def _sized(rows: Tensor | None, like: Tensor, count: int) -> Tensor:
    """A state of so many rows: those before, then zeros."""
    if rows is not None and len(rows) == count:
        return rows
    sized = like.new_zeros(count, *like.shape[1:])
    if rows is not None:
        sized[: len(rows)] = rows[:count]
    return sized
