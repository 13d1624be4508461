"""Pages: which parts of the cache's memory hold the keys and values of which row.

A row takes a page whenever its pages are full and gives all back when it ends, so that memory
follows the tokens that there are (Kwon et al. 2023, "PagedAttention", arXiv:2309.06180). Prompts
are not paged: they lie in places of their own, once for all their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

PAGE = 64
"""Tokens of a page."""
_PARTS = 16  # that a row has room for in the table, at least
_NOTHING, _WASTE = 0, 1  # pages of no row: zeros that are read and masked; what ended rows write


class Pages:
    """
    The pages of rows, on the host, and as a table where a pass reads it.

    Attributes:
        count: Pages that there is memory for.
        table: The page of each part of each row, (rows there is room for, parts) int32.
    """

    def __init__(
        self,
        device: torch.device,
        send: Callable[[np.ndarray, Tensor], None],  # as `Capture.send`
    ) -> None:
        self._send = send
        self.count = _WASTE + 1
        self.table = torch.zeros(0, _PARTS, dtype=torch.int32, device=device)
        self._next = np.zeros(tuple(self.table.shape), np.int32)  # what the table says after `hold`
        self._held: list[list[int]] = []  # of each row, in the order of its tokens
        self._free: list[int] = []

    def reserve(self, rows: int, parts: int) -> None:
        """Make room in the table; where it is made anew it says nothing until `hold`."""
        shape = max(rows, len(self.table)), max(parts, self.table.shape[1])
        if shape != self.table.shape:
            self.table = self.table.new_full(shape, _WASTE)
            self._next = np.full(shape, _WASTE, np.int32)
            self._held += [[] for _ in range(shape[0] - len(self._held))]
            for row in range(len(self._held)):
                self._note(row)

    def add(self, pages: int) -> None:
        """There is memory for so many pages more."""
        self._free += range(self.count, self.count + pages)
        self.count += pages

    def lack(self, parts: Mapping[int, int]) -> int:
        """Pages that lack for rows to hold so many parts each."""
        wanted = sum(max(0, count - len(self._held[row])) for row, count in parts.items())
        return max(0, wanted - len(self._free))

    def hold(self, parts: Mapping[int, int]) -> None:
        """Give rows so many pages, and tell the table; no page is named by two rows."""
        for row, count in parts.items():
            held = self._held[row]
            if count > len(held):
                held += [self._free.pop() for _ in range(count - len(held))]
                self._note(row)
        self._send(self._next, self.table)

    def free(self, row: int) -> None:
        """The row ended. What it writes still goes to its pages, until the next `hold`."""
        self._free += self._held[row]
        self._held[row] = []
        self._note(row)

    def move(self, source: int, target: int) -> None:
        """The target, which holds nothing, goes on with the pages of the source."""
        self._held[target], self._held[source] = self._held[source], self._held[target]
        self._note(source)
        self._note(target)

    def clear(self) -> None:
        """No row holds anything."""
        for row in range(len(self._held)):
            self.free(row)

    def _note(self, row: int) -> None:
        held = self._held[row]
        self._next[row] = _NOTHING if held else _WASTE
        self._next[row, : len(held)] = held
