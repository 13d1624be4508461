"""Which rows train and which are held out: by position, so that none is in both.

Puzzles and positions of games go by their game, test suites are always held out, and a row's own
split wins. A position that two games share would then be in both splits: it trains, so that what is
held out was never seen.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable

from rlvr_chess.fen import four_fields
from rlvr_chess.rows.row import Row, Unsupported

_SCALE = 2**64


def split_of(key: str, holdout: float) -> str:
    """Test or train: "test" for a share `holdout` of all keys, by hash."""
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8])
    return "test" if number < holdout * _SCALE else "train"


def divide(
    rows: Iterable[Row | Unsupported], holdout: float
) -> list[tuple[Row, str] | Unsupported]:
    """
    Each row with its split, order kept.

    A position that rows of their own accord put into both splits stays in "test"; its rows of
    split "train" are unsupported.
    """
    rows = list(rows)
    positions = [four_fields(row.payload.fen) if isinstance(row, Row) else "" for row in rows]
    wanted: dict[str, set[str]] = defaultdict(set)
    own: dict[str, set[str]] = defaultdict(set)
    for row, position in zip(rows, positions, strict=True):
        if isinstance(row, Row):
            (own if row.split else wanted)[position].add(
                row.split or split_of(row.game or position, holdout)
            )
    divided: list[tuple[Row, str] | Unsupported] = []
    for row, position in zip(rows, positions, strict=True):
        if isinstance(row, Unsupported):
            divided.append(row)
        elif row.split == "train" and "test" in own[position]:
            reason = 'its split is "train", and its position is held out by another row'
            divided.append(Unsupported(id=row.id, reason=reason))
        else:
            ours = own[position]  # held out by one row: by all; else it trains where one may
            divided.append((row, row.split or (min(ours) if ours else max(wanted[position]))))
    return divided
