"""A netlist of yosys with its flip-flops cut open: their inputs become outputs, Q an input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attrs import frozen

_FUNCTIONS = (
    "$not $pos $neg $and $or $xor $xnor $reduce_and $reduce_or $reduce_xor $reduce_xnor "
    "$reduce_bool $shl $shr $sshl $sshr $shift $shiftx $lt $le $eq $ne $eqx $nex $ge $gt $add "
    "$sub $mul $div $mod $divfloor $modfloor $pow $logic_not $logic_and $logic_or $mux $pmux "
    "$bmux $demux $slice $concat"
)
_COMBINATIONAL = frozenset(_FUNCTIONS.split())
_FLIP_FLOPS = {"$dff", "$adff", "$aldff", "$dffe", "$adffe", "$sdff", "$sdffe", "$sdffce"}


@frozen
class Netlist:
    """
    A design without its flip-flops.

    Attributes:
        cut: The design as yosys reads it again; None where something in it is neither a
            flip-flop nor a function.
        registers: Kind and parameters (polarities, reset value) of each register, by the names of
            its bits.
        power_up: Declared power-up value of each register's bits, "x" where there is none.
        has_parameters: The top module has parameters of its own.
    """

    cut: dict[str, Any] | None
    registers: dict[str, tuple[str, str]]
    power_up: dict[str, str]
    has_parameters: bool


def read_netlist(path: Path, name: str) -> Netlist:
    """The top module of a file of `write_json`, renamed to `name`."""
    modules: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["modules"]
    module = next(m for m in modules.values() if "top" in m["attributes"])
    nets = {n: net for n, net in module["netnames"].items() if not net.get("hide_name")}
    names = _bit_names(nets)
    values = _bit_values(nets)
    cells = {n: c for n, c in module["cells"].items() if c["type"] not in _FLIP_FLOPS}
    is_plain = all(cell["type"] in _COMBINATIONAL for cell in cells.values())
    is_plain = is_plain and _is_driven_once(module)
    flip_flops = {}
    for cell in module["cells"].values():
        if cell["type"] in _FLIP_FLOPS:
            is_plain = is_plain and all(bit in names for bit in cell["connections"]["Q"])
            flip_flops[" ".join(names.get(b, "?") for b in cell["connections"]["Q"])] = cell
    ports = dict(module["ports"])
    registers, power_up = {}, {}
    for number, (own, cell) in enumerate(sorted(flip_flops.items())):
        registers[own] = (cell["type"], json.dumps(cell["parameters"], sort_keys=True))
        power_up[own] = "".join(values.get(bit, "x") for bit in cell["connections"]["Q"])
        for link, bits in cell["connections"].items():
            direction = "input" if link == "Q" else "output"
            # numbers are the same in every netlist with the same registers
            ports[f"cut_{number}_{link}"] = {"direction": direction, "bits": bits}
    bare = {n: {**net, "attributes": {}} for n, net in module["netnames"].items()}
    cut = {"attributes": {}, "ports": ports, "cells": cells, "netnames": bare}
    return Netlist(
        cut={"modules": {name: cut}} if is_plain else None,
        registers=registers,
        power_up=power_up,
        has_parameters=bool(module.get("parameter_default_values")),
    )


def _bit_names(nets: dict[str, Any]) -> dict[Any, str]:
    """The alphabetically first name of each bit."""
    names: dict[Any, str] = {}
    for name in sorted(nets):
        for place, bit in enumerate(nets[name]["bits"]):
            names.setdefault(bit, f"{name}[{place}]")
    return names


def _bit_values(nets: dict[str, Any]) -> dict[Any, str]:
    return {
        bit: value
        for net in nets.values()
        for bit, value in zip(
            net["bits"], str(net["attributes"].get("init", ""))[::-1], strict=False
        )
        if value in "01"
    }


def _is_driven_once(module: dict[str, Any]) -> bool:
    """No bit has two drivers: contradictions would prove anything."""
    driven = [
        bit
        for port in module["ports"].values()
        if port["direction"] != "output"
        for bit in port["bits"]
    ]
    for cell in module["cells"].values():
        for link, direction in cell.get("port_directions", {}).items():
            driven += cell["connections"][link] if direction == "output" else []
    return len(set(driven)) == len(driven) and all(isinstance(bit, int) for bit in driven)
