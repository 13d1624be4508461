"""Puts a draft together from what a family draws."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from .clocking import Clocking
from .draft import Difficulty, Draft, Param
from .harness import ClockedChecks, CombChecks
from .style import Design, Port

OPENINGS = ("Write the module {}.", "Design a module named {}.", "Implement the module {}.")
SUFFIXES = ("", "_core", "_unit", "_blk", "_x")


def inp(name: str, width: int = 1) -> Port:
    """An input port."""
    return Port("input", name, width)


def out(name: str, width: int = 1) -> Port:
    """An output port driven by ``assign``."""
    return Port("output", name, width)


def reg(name: str, width: int = 1) -> Port:
    """An output port driven by a process."""
    return Port("output", name, width, "reg")


def comb(
    family: str,
    rng: random.Random,
    *,
    params: Mapping[str, Param],
    difficulty: Difficulty,
    names: Sequence[str],
    ports: Sequence[Port],
    says: str,
    body: Sequence[str],
    expected: Sequence[str],
    tests: Mapping[str, str] | None = None,
    weights: Mapping[str, float] | None = None,
) -> Draft:
    """A combinational draft; arguments as in `Draft`, `Design` and `CombChecks`."""
    name = rng.choice(names) + rng.choice(SUFFIXES)
    return Draft(
        family=family,
        params=tuple(params.items()),
        difficulty=difficulty,
        spec=_spec(rng, name, ports, "", says),
        design=Design(name=name, ports=tuple(ports), body=tuple(body)),
        checks=CombChecks(expected=expected, tests=tests or {}, weights=weights or {}),
    )


def clocked(
    family: str,
    rng: random.Random,
    clocking: Clocking,
    *,
    params: Mapping[str, Param],
    difficulty: Difficulty,
    names: Sequence[str],
    ports: Sequence[Port],
    resets: str,
    says: str,
    body: Sequence[str],
    reset: Sequence[str],
    step: Sequence[str],
    outputs: Sequence[str],
    tests: Mapping[str, str] | None = None,
    weights: Mapping[str, float] | None = None,
    between_resets: str = "vectors(turn + 9)",
) -> Draft:
    """
    A clocked draft; ``ports`` and ``params`` come without clock and reset.

    ``resets`` completes "an asynchronous reset that ..." in the specification.
    """
    name = rng.choice(names) + rng.choice(SUFFIXES)
    ports = (*clocking.ports, *ports)
    return Draft(
        family=family,
        params=(*clocking.params.items(), *params.items()),
        difficulty=difficulty,
        spec=_spec(rng, name, ports, clocking.says(resets), says),
        design=Design(name=name, ports=ports, body=tuple(body)),
        checks=ClockedChecks(
            clocking=clocking,
            reset=reset,
            step=step,
            outputs=outputs,
            tests=tests or {},
            weights=weights or {},
            between_resets=between_resets,
        ),
    )


def _spec(rng: random.Random, name: str, ports: Sequence[Port], about: str, says: str) -> str:
    listed = ", ".join(port.text for port in ports)
    opening = rng.choice(OPENINGS).format(name)
    return " ".join(part for part in (opening, f"Ports: {listed}.", about, says) if part)
