"""Group the rows of a batch by prompt, and bring them back into their own order.

Scores of all rows over their prompts are one matrix product a prompt if the rows of each prompt
lie together. So rows are copied into a table with a line a prompt and a place (seat) a row.

Shapes: R rows, P prompts, G most rows of any prompt, K key heads, Q query heads of each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class GroupRows:
    """
    The table of rows by prompt.

    An empty place holds the numbers of some row; nothing reads them. Where each row has a prompt of
    its own, all places of a prompt hold its row.
    """

    def __init__(
        self,
        # Place of each row's prompt; None where the row is free (it reads the first place).
        owner: Sequence[int | None],
        prompts: int,  # P
        group_rows: int,  # places a prompt (G), at least as many as any prompt has rows
        device: torch.device,  # where the rows are
        *,
        is_static: bool = False,  # do the same operations whatever rows are in the table
    ) -> None:
        self.shape = (prompts, group_rows)
        of_row, of_seat = [0] * len(owner), [0] * (prompts * group_rows)
        taken = [0] * prompts
        for row, place in enumerate(owner):
            if place is not None:
                of_row[row] = place * group_rows + taken[place]
                of_seat[of_row[row]] = row
                taken[place] += 1
        self._is_plain = not is_static and of_row == list(range(prompts * group_rows))
        self._is_lone = not is_static and is_lone(owner, prompts)
        self.of_row = torch.tensor(of_row, device=device)  # (R,)
        self.of_seat = torch.tensor(of_seat, device=device)  # (P * G,)

    def sit(self, values: Tensor, keys: int) -> Tensor:
        """Group rows by prompt: (R * K, Q, X) to (P * K, G * Q, X)."""
        prompts, group_rows = self.shape
        if self._is_lone:
            # No view: its product takes far longer.
            return values if group_rows == 1 else torch.cat([values] * group_rows, 1)
        values = values.unflatten(0, (-1, keys))  # (R, K, Q, X)
        if not self._is_plain:
            values = values.index_select(0, self.of_seat)
        table = values.unflatten(0, self.shape).transpose(1, 2)  # (P, K, G, Q, X)
        return table.reshape(prompts * keys, -1, values.shape[3])

    def stand(self, table: Tensor) -> Tensor:
        """Ungroup rows: (P * K, G * Q, X) to (R * K, Q, X)."""
        prompts, group_rows = self.shape
        if self._is_lone:
            return table[:, : table.shape[1] // group_rows]
        shape = (prompts, -1, group_rows, table.shape[1] // group_rows, table.shape[2])
        values = table.view(shape).transpose(1, 2).flatten(0, 1)  # (R, K, Q, X)
        if not self._is_plain:
            values = values.index_select(0, self.of_row)
        return values.flatten(0, 1)


def is_lone(owner: Sequence[int | None], prompts: int) -> bool:
    """Whether row i reads prompt i for every row, so that no row has to be moved."""
    return len(owner) == prompts and all(
        place is None or place == row for row, place in enumerate(owner)
    )
