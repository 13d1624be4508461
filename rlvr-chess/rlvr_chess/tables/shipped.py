"""The table that comes with this distribution: the starter positions, every legal move scored."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

from rlvr_chess.tables.file import Table, read_table
from rlvr_chess.values import ActionValues

SHIPPED = Path(__file__).parent.parent / "starter" / "positions.jsonl.gz"
"""The file, as package data."""


@functools.cache
def shipped_table() -> Table | None:
    """
    The shipped table, read once; None where the distribution was built without it.

    A test holds its moves against the rules, so not every start pays for that.
    """
    return read_table(SHIPPED, is_trusted=True) if SHIPPED.is_file() else None


def shipped_positions() -> Iterator[tuple[ActionValues, str]]:
    """The shipped positions with the split each belongs to ("" where the hash decides)."""
    table = shipped_table()
    if table is not None:
        for entry in table.entries.values():
            yield entry.values, entry.split
