"""Rows of a batch in their own order, or by prompt: the one layout from the other.

Scores of all rows over their prompts are one matrix product a prompt if the rows of each prompt
stand together. They sit down in a table of prompts times seats for it.

Shapes: R rows, P prompts, G most rows of any prompt, K key heads, Q query heads of each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Seats:
    """
    The table. Empty seats hold some row's numbers, which nobody reads.

    Args:
        owner: Place of each row's prompt; None where the row is free (it reads the first seat).
        prompts: P.
        seats: G, or 0 for as many as are needed.
        device: Where the rows are.
        is_static: Do the same operations whoever sits where.
    """

    def __init__(
        self,
        owner: Sequence[int | None],
        prompts: int,
        seats: int,
        device: torch.device,
        *,
        is_static: bool = False,
    ) -> None:
        counts = [0] * prompts
        numbers = []
        for place in owner:
            numbers.append(0 if place is None else counts[place])
            if place is not None:
                counts[place] += 1
        self.shape = (prompts, seats or max(counts))
        width = self.shape[1]
        of_row = [0 if p is None else p * width + n for p, n in zip(owner, numbers, strict=True)]
        of_seat = [0] * (prompts * width)
        for row, place in enumerate(owner):
            if place is not None:
                of_seat[of_row[row]] = row
        self._is_plain = not is_static and of_row == list(range(prompts * width))
        self.of_row = torch.tensor(of_row, device=device)  # (R,)
        self.of_seat = torch.tensor(of_seat, device=device)  # (P * G,)

    def sit(self, values: Tensor, keys: int) -> Tensor:
        """(R * K, Q, X) to (P * K, G * Q, X)."""
        prompts, seats = self.shape
        if self._is_plain and seats == 1:
            return values
        values = values.unflatten(0, (-1, keys))  # (R, K, Q, X)
        if not self._is_plain:
            values = values.index_select(0, self.of_seat)
        table = values.unflatten(0, self.shape).transpose(1, 2)  # (P, K, G, Q, X)
        return table.reshape(prompts * keys, -1, values.shape[3])

    def stand(self, table: Tensor) -> Tensor:
        """(P * K, G * Q, X) to (R * K, Q, X)."""
        prompts, seats = self.shape
        if self._is_plain and seats == 1:
            return table
        shape = (prompts, -1, seats, table.shape[1] // seats, table.shape[2])
        values = table.view(shape).transpose(1, 2).flatten(0, 1)  # (R, K, Q, X)
        if not self._is_plain:
            values = values.index_select(0, self.of_row)
        return values.flatten(0, 1)
