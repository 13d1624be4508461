"""A task's further figures (`Task.measure`): how they are measured, shown and written as JSON."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import attrs
from attrs import frozen

from rlvr.border.abilities import figures_of
from rlvr.cli.output import number, table
from rlvr.heartbeat import say
from rlvr.parts import Policy, Task
from rlvr.types import Metric


@frozen
class Measured:
    """The figures of one model; `broken` is what ended them early, raised after the report."""

    figures: Sequence[Metric] = ()
    broken: Exception | KeyboardInterrupt | None = None

    def as_json(self) -> dict[str, Any]:
        """`figures`, where there are any, and `figures_error` where they are not all."""
        told: dict[str, Any] = {"figures": figures_as_json(self.figures)} if self.figures else {}
        if self.broken is not None:
            told["figures_error"] = str(self.broken) or type(self.broken).__name__
        return told


async def measured(task: Task, policy: Policy, *, split: str, seed: int, quiet: bool) -> Measured:
    """
    Ask the task; each number is said on standard error when it is there, unless `quiet`.

    An error or a Ctrl-C ends this and nothing else: what was judged before is to be reported.
    """
    found: list[Metric] = []
    try:
        async for figure in figures_of(task, policy, split, seed):
            found.append(figure)
            if not quiet:
                say(figure_line(figure))
    except asyncio.CancelledError:
        if (current := asyncio.current_task()) is not None:
            current.uncancel()
        return Measured(found, KeyboardInterrupt())
    except Exception as error:  # the plugin border
        return Measured(found, error)
    return Measured(found)


def figure_line(figure: Metric) -> str:
    """The line that is printed as soon as a figure is measured."""
    return f"  {figure.name} {_value(figure)} {_interval(figure)} n={figure.n}"


def figures_as_json(figures: Sequence[Metric]) -> dict[str, Any]:
    """By name: value, low, high, n, note; null for a number that JSON has not."""
    return {
        figure.name: {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in attrs.asdict(figure).items()
            if key != "name"
        }
        for figure in figures
    }


def figures_as_text(figures: Sequence[Metric], others: Sequence[Metric] | None = None) -> str:
    """A row a number of either model; that of the other one beside it."""
    own = {figure.name: figure for figure in figures}
    beside = {figure.name: figure for figure in others or ()}
    header = ["FIGURE", "VALUE", "95 % INTERVAL", "N"]
    header += ["OTHER", "ITS INTERVAL"] if others is not None else []
    rows = []
    for name in {**own, **beside}:
        row = [name, *_cells(own.get(name))]
        if others is not None:
            row += _cells(beside.get(name))[:2]
        rows.append([*row, (own.get(name) or beside[name]).note])
    return table([*header, "NOTE"], rows)


def _cells(figure: Metric | None) -> list[str]:
    return ["-"] * 3 if figure is None else [_value(figure), _interval(figure), str(figure.n)]


def _value(figure: Metric) -> str:
    return number(None if math.isnan(figure.value) else figure.value)


def _interval(figure: Metric) -> str:
    if any(math.isnan(bound) for bound in (figure.value, figure.low, figure.high)):
        return number(None)
    return f"[{number(figure.low)}, {number(figure.high)}]"
