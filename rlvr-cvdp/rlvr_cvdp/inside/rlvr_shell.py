"""A module of a design's name and ports around its netlist, so that tests take it for the design.

Standard library only; it runs inside the sandbox (see rlvr_netlist.py).
"""

from __future__ import annotations

import re
from typing import Any

NAME = "rlvr_netlist"
"""The netlist's module."""

PLAIN = re.compile(r"[A-Za-z_]\w*\Z")
_KEYWORDS = """
always and assign begin buf bufif0 bufif1 case casex casez cmos deassign default defparam disable
edge else end endcase endfunction endmodule endprimitive endspecify endtable endtask event for force
forever fork function highz0 highz1 if ifnone initial inout input integer join large macromodule
medium module nand negedge nmos nor not notif0 notif1 or output parameter pmos posedge primitive
pull0 pull1 pulldown pullup rcmos real realtime reg release repeat rnmos rpmos rtran small specify
specparam strong0 strong1 supply0 supply1 table task time tran tri tri0 tri1 triand trior trireg
vectored wait wand weak0 weak1 while wire wor xnor xor bit byte logic int type string var do return
break continue unique priority enum struct union packed signed unsigned const final local static
always_comb always_ff always_latch assert assume cover property sequence import export package
"""
_WORDS = frozenset(_KEYWORDS.split())
_UNITS = {0: "s", -3: "ms", -6: "us", -9: "ns", -12: "ps", -15: "fs"}


def is_free(name: str) -> bool:
    """Whether a signal or a parameter may be declared by this name."""
    return bool(PLAIN.match(name)) and name not in _WORDS and name != NAME


def shell(top: str, module: dict[str, Any], seen: dict[str, Any]) -> str:
    """
    A module of the design's name and ports around its netlist.

    It shows the design's parameters and the netlist's named signals as variables that follow them,
    so that tests which read them can, and a test that sets every net to 0 changes nothing inside.
    """
    lines = [f"`timescale {_time(seen['unit'])}/{_time(seen['precision'])}"] if seen["unit"] else []
    ports = module["ports"]
    lines.append(f"module {top} ({', '.join(_name(port) for port in ports)});")
    taken = set(ports)
    for name, value in seen["parameters"]:
        if name not in taken:
            lines.append(f"  parameter {name} = {value};")
            taken.add(name)
    links = []
    for name, port in ports.items():
        size = _size(port)
        kind = {"output": "output reg"}.get(port["direction"], port["direction"])
        lines.append(f"  {kind} {size}{_name(name)};")
        links.append(f".{_name(name)}({_name(name)})")
        if port["direction"] == "output":
            lines.append(f"  wire {size}rlvr_o_{len(links)};")
            lines.append(f"  always_comb {_name(name)} = rlvr_o_{len(links)};")
            links[-1] = f".{_name(name)}(rlvr_o_{len(links)})"
    lines.append(f"  {NAME} {NAME} ({', '.join(links)});")
    for name, net in module["netnames"].items():
        if not net.get("hide_name") and name not in taken and is_free(name):
            lines.append(f"  reg {_size(net)}{name};")
            lines.append(f"  always_comb {name} = {NAME}.{name};")
    return "\n".join([*lines, "endmodule"]) + "\n"


def _name(name: str) -> str:
    return name if PLAIN.match(name) else f"\\{name} "


def _size(net: dict[str, Any]) -> str:
    low, width = int(net.get("offset", 0)), len(net["bits"])
    if width == 1 and not low:
        return ""
    high = low + width - 1
    return f"[{low}:{high}] " if net.get("upto") else f"[{high}:{low}] "


def _time(power: int) -> str:
    unit = power // 3 * 3
    return f"{10 ** (power - unit)}{_UNITS[unit]}"
