"""What a task measured besides right and wrong (`Measuring`), as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from rlvr.cli.output import number, table
from rlvr.types import Figure


def figure_line(figure: Figure) -> str:
    """One number while the others are still measured."""
    return f"  {figure.name} {number(figure.value)} {_interval(figure)} n={figure.n}"


def figures_as_json(figures: Sequence[Figure]) -> dict[str, Any]:
    """By name: value, low, high, n, note."""
    return {
        figure.name: {k: v for k, v in attrs.asdict(figure).items() if k != "name"}
        for figure in figures
    }


def figures_as_text(figures: Sequence[Figure], others: Sequence[Figure] | None = None) -> str:
    """A row a number; beside it that of another model where there is one."""
    beside = {figure.name: figure for figure in others or ()}
    header = ["FIGURE", "VALUE", "95 % INTERVAL", "N"]
    header += ["OTHER", "ITS INTERVAL"] if others is not None else []
    rows = []
    for figure in figures:
        row = [figure.name, number(figure.value), _interval(figure), str(figure.n)]
        if others is not None:
            other = beside.get(figure.name)
            row += [number(other.value), _interval(other)] if other else ["-", "-"]
        rows.append([*row, figure.note])
    return table([*header, "NOTE"], rows)


def _interval(figure: Figure) -> str:
    return f"[{number(figure.low)}, {number(figure.high)}]"
