"""
Whether two netlists are one but for names: cells of one kind that stand in one place are one.

Called inside the sandbox as `rlvr_same.py PORT...` on /rlvr/out/gold.json and gate.json, which
yosys wrote; exits with 0 where the two are the same. All cells begin in classes by what they are;
a class is split as long as its cells differ in what drives them. What is left in one class at the
end cannot be told apart from outside. Linear in the design for each round, without a solver: for
designs that are too large for one. Standard library only.
"""

from __future__ import annotations

import json
import sys
from typing import Any

OUT = "/rlvr/out"
_EITHER = {"$add", "$mul", "$and", "$or", "$xor", "$xnor", "$eq", "$ne", "$logic_and", "$logic_or"}
"""Cells whose two inputs may be exchanged."""
_NAMES = {"MEMID"}


class Netlist:
    """One module of yosys's JSON: cells, and what drives each bit."""

    def __init__(self, module: dict[str, Any]) -> None:
        self.ports: dict[str, Any] = module["ports"]
        self.cells: list[dict[str, Any]] = list(module["cells"].values())
        self.colours: list[int] = []
        self._drivers: dict[int, tuple[Any, ...]] = {}
        self._first: dict[int, str] = {}
        for net in module["netnames"].values():
            value = net["attributes"].get("init", "")
            self._first.update(zip(net["bits"], reversed(value), strict=False))
        for name, port in self.ports.items():
            if port["direction"] != "output":
                self._drive(port["bits"], "", name)
        for number, cell in enumerate(self.cells):
            for name, direction in cell["port_directions"].items():
                if direction != "input":
                    self._drive(cell["connections"][name], number, name)

    def _drive(self, bits: list[Any], owner: object, name: str) -> None:
        for place, bit in enumerate(bits):
            if bit in self._drivers:
                raise ValueError("a bit of two drivers")
            self._drivers[bit] = (owner, name, place)

    def start(self, number: int) -> tuple[Any, ...]:
        """What a cell is, whatever drives it."""
        cell = self.cells[number]
        values = sorted((k, v) for k, v in cell["parameters"].items() if k not in _NAMES)
        first = [
            (name, self._first.get(bit))
            for name, bits in sorted(cell["connections"].items())
            if cell["port_directions"][name] != "input"
            for bit in bits
        ]
        return (cell["type"], tuple(values), tuple(first))

    def driven(self, number: int) -> tuple[Any, ...]:
        """What drives a cell, in colours."""
        cell = self.cells[number]
        inputs = {
            name: self.seen(bits)
            for name, bits in cell["connections"].items()
            if cell["port_directions"][name] == "input"
        }
        values = cell["parameters"]
        if cell["type"] in _EITHER and all(
            values.get(f"A_{kind}") == values.get(f"B_{kind}") for kind in ("WIDTH", "SIGNED")
        ):
            inputs["A"], inputs["B"] = sorted((inputs["A"], inputs["B"]))
        return tuple(sorted(inputs.items()))

    def seen(self, bits: list[Any]) -> tuple[tuple[str, ...], ...]:
        """What drives some bits; all of it text, so that it can be sorted."""
        found = []
        for bit in bits:
            owner, name, place = self._drivers.get(bit, ("", str(bit), -1))
            if place < 0 and not isinstance(bit, str):
                name = "nothing"
            colour = str(self.colours[owner]) if owner != "" else ""
            found.append((colour, name, str(place)))
        return tuple(found)


def same(gold: Netlist, gate: Netlist, ports: list[str]) -> bool:
    """Whether the outputs among the ports cannot be told apart."""
    known: dict[Any, int] = {}
    for side in (gold, gate):
        side.colours = [known.setdefault(side.start(n), len(known)) for n in range(len(side.cells))]
    count = 0
    while len(known) > count:
        count, known = len(known), {}
        # Each looks at the classes of the round before: they are one list for both.
        later = [
            [
                known.setdefault((side.colours[n], side.driven(n)), len(known))
                for n in range(len(side.cells))
            ]
            for side in (gold, gate)
        ]
        gold.colours, gate.colours = later
    for name in ports:
        one, other = gold.ports.get(name), gate.ports.get(name)
        if not one or not other or one["direction"] != other["direction"]:
            return False
        if len(one["bits"]) != len(other["bits"]):
            return False
        if one["direction"] != "input" and gold.seen(one["bits"]) != gate.seen(other["bits"]):
            return False
    return True


def main(ports: list[str]) -> int:
    """0 where they are the same, 1 where not."""
    sides = []
    for name in ("gold", "gate"):
        with open(f"{OUT}/{name}.json", encoding="utf-8") as file:
            sides.append(Netlist(json.load(file)["modules"][name]))
    return 0 if same(*sides, ports) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
