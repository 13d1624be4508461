"""Results on standard output: tables for people, JSON for programs."""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import attrs
from rich.cells import cell_len, set_cell_size

from rlvr.heartbeat import harmless


def table(
    header: Sequence[str], rows: Sequence[Sequence[object]], widths: Sequence[int] = ()
) -> str:
    """Left-aligned columns, two spaces apart; `widths` are least widths of the first ones."""
    cells = [[harmless(str(cell), keep="") for cell in row] for row in [header, *rows]]
    least = [*widths, *([0] * (len(header) - len(widths)))]
    wide = [max(least[i], *(cell_len(row[i]) for row in cells)) for i in range(len(header))]
    lines = ("  ".join(map(set_cell_size, row, wide)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def number(value: object) -> str:
    """A value in a cell of a table: four digits of a float, `-` for nothing."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else str(value)


def print_json(value: Any) -> None:
    """Print a value as JSON; attrs records become objects, paths become texts."""
    is_utf8 = (sys.stdout.encoding or "").lower().startswith("utf")
    print(json.dumps(value, indent=2, default=_plain, ensure_ascii=not is_utf8))


def _plain(value: Any) -> Any:
    if attrs.has(type(value)):
        return attrs.asdict(value)
    return sorted(value) if isinstance(value, frozenset | set) else str(value)


def is_reader_gone() -> bool:
    """Whether nobody reads standard output: another pipe, of a part, may have broken."""
    with suppress(OSError, ValueError):  # it is no file of the system
        poll = select.poll()
        poll.register(sys.stdout, 0)
        return bool(poll.poll(0))
    return False
