"""Clock and reset of a sequential design: names, edge, polarity, and the process they head."""

from __future__ import annotations

import random
from collections.abc import Sequence

from attrs import frozen

from .style import Port


@frozen(kw_only=True)
class Clocking:
    """Clock and reset as drawn for one draft."""

    clock: str
    reset: str
    is_falling: bool
    is_async: bool
    is_low: bool

    @property
    def ports(self) -> tuple[Port, ...]:
        """The two input ports, first in every sequential module."""
        return (Port("input", self.clock), Port("input", self.reset))

    @property
    def params(self) -> dict[str, int | str | bool]:
        """What of it changes behaviour."""
        return {"falling": self.is_falling, "async": self.is_async, "low": self.is_low}

    @property
    def edge(self) -> str:
        """The active edge in words."""
        return f"{'falling' if self.is_falling else 'rising'} edge of {self.clock}"

    def says(self, effect: str) -> str:
        """The sentences about clock and reset; ``effect`` completes "that ..."."""
        kind = "asynchronous" if self.is_async else "synchronous"
        level = "low" if self.is_low else "high"
        return (
            f"State changes on the {self.edge}. "
            f"{self.reset} is an {kind} active-{level} reset that {effect}."
        ).replace("an synchronous", "a synchronous")

    def process(self, on_reset: Sequence[str], then: Sequence[str]) -> list[str]:
        """The clocked process: statements under reset, and the statements otherwise."""
        events = f"{'negedge' if self.is_falling else 'posedge'} {self.clock}"
        if self.is_async:
            events += f" or {'negedge' if self.is_low else 'posedge'} {self.reset}"
        test = f"if ({'!' if self.is_low else ''}{self.reset})"
        lines = [f"always_ff @({events}) begin"]
        if len(on_reset) == 1:
            lines.append(f"  {test} {on_reset[0]}")
        else:
            lines += [f"  {test} begin", *(f"    {line}" for line in on_reset), "  end"]
        if _is_one_statement(then):
            lines += [f"  else {then[0]}", *(f"  {line}" for line in then[1:])]
        else:
            lines += ["  else begin", *(f"    {line}" for line in then), "  end"]
        return [*lines, "end"]


def draw_clocking(rng: random.Random) -> Clocking:
    """Rising edges mostly; reset's timing and polarity at even odds."""
    is_low = rng.random() < 0.5
    return Clocking(
        clock=rng.choice(("clk", "clock")),
        reset=rng.choice(("rst_n", "reset_n") if is_low else ("rst", "reset")),
        is_falling=rng.random() < 0.15,
        is_async=rng.random() < 0.5,
        is_low=is_low,
    )


def _is_one_statement(lines: Sequence[str]) -> bool:
    """Whether the lines are a single statement or one chain of if and else."""
    top = [line for line in lines if not line.startswith(" ")]
    if len(lines) == 1:
        return True
    return top[0].startswith("if ") and all(line.startswith(("else", "end")) for line in top[1:])
