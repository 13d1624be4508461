"""What a task measured besides right and wrong (`Measuring`), as a table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs

from rlvr.cli.output import number, table
from rlvr.types import Figure


def figure_line(figure: Figure) -> str:
    """One number while the others are still measured."""
    return f"  {figure.name} {_value(figure)} {_interval(figure)} n={figure.n}"


def figures_as_json(figures: Sequence[Figure]) -> dict[str, Any]:
    """By name: value, low, high, n, note; null for a number that could not be measured."""
    return {
        figure.name: {
            key: None if isinstance(value, float) and math.isnan(value) else value
            for key, value in attrs.asdict(figure).items()
            if key != "name"
        }
        for figure in figures
    }


def figures_as_text(figures: Sequence[Figure], others: Sequence[Figure] | None = None) -> str:
    """A row a number; beside it that of another model where there is one."""
    beside = {figure.name: figure for figure in others or ()}
    header = ["FIGURE", "VALUE", "95 % INTERVAL", "N"]
    header += ["OTHER", "ITS INTERVAL"] if others is not None else []
    rows = []
    for figure in figures:
        row = [figure.name, _value(figure), _interval(figure), str(figure.n)]
        if others is not None:
            other = beside.get(figure.name)
            row += [_value(other), _interval(other)] if other else ["-", "-"]
        rows.append([*row, figure.note])
    return table([*header, "NOTE"], rows)


def _value(figure: Figure) -> str:
    return number(None if math.isnan(figure.value) else figure.value)


def _interval(figure: Figure) -> str:
    if math.isnan(figure.value):
        return number(None)
    return f"[{number(figure.low)}, {number(figure.high)}]"
