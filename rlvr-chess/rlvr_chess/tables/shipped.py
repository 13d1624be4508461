"""What comes with this distribution: the starter positions, every legal move scored; questions."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path

from rlvr_chess.questions.records import EnvironmentStep
from rlvr_chess.starter import QUESTIONS
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


def shipped_questions() -> Iterator[tuple[EnvironmentStep, str]]:
    """Shipped questions of the kinds of moves that the positions hardly ask, and their split."""
    for line in QUESTIONS.read_text("utf-8").splitlines():
        row = json.loads(line)
        split = row.pop("split")
        yield EnvironmentStep(**row), split
