"""Reads a compiled simulation of Icarus Verilog: its ports, and its form without names."""

from __future__ import annotations

import re

Ports = dict[str, tuple[str, int]]
"""Name to direction (`input`, `output`, `inout`, `input array`...) and bits; 0: any width."""

_PORT = re.compile(r'\s*\.port_info \d+ /(\w+) (\d+) "([^"]+)"')
_ARRAY = re.compile(r'v\w+ \.array(?:/\w+)? "([^"]+)"')
_LABEL = re.compile(r"\b[A-Za-z]+_?0x[0-9a-f]+(?:_\d+)*(?:\.\w+)?|\bT_\d+(?:\.\d+)?")
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_PLACE = re.compile(r'^(S_\S+ \.scope \w+, "[^"]*" "[^"]*")( \d+ \d+)+')
_DEFINED = re.compile(r"^(\S+) \.(?:net|var|param|array|alias|scope)\S* ")


def ports_of(simulation: str, module: str) -> Ports:
    """The ports of the first instance of a module; {} where there is none."""
    ports: Ports = {}
    is_inside = False
    for line in simulation.splitlines():
        if ".scope " in line:
            if ports:
                break
            is_inside = (
                re.search(rf'\.scope module, "[^"]*" "{re.escape(module)}"', line) is not None
            )
        elif is_inside and (match := _PORT.match(line)):
            ports[match[3]] = (match[1].lower(), int(match[2]))
        elif is_inside and (match := _ARRAY.match(line)) and match[1] in ports:
            direction, width = ports[match[1]]
            ports[match[1]] = (f"{direction} array", width)
    return ports


def same_simulation(one: str, other: str) -> bool:
    """Whether two compiled simulations differ in nothing but names, places and unused signals."""
    return _form(one) == _form(other)


def _form(simulation: str) -> list[str]:
    lines = [
        _PLACE.sub(r"\1", line.partition(";  ")[0])
        for line in simulation.partition("# The file index")[0].splitlines()
        if line and not line.startswith((":", "#")) and ".param/" not in line
    ]
    counts: dict[str, int] = {}
    for line in lines:
        for label in _LABEL.findall(line):
            counts[label] = counts.get(label, 0) + 1
    numbers: dict[str, str] = {}
    form = []
    for line in lines:
        defined = _DEFINED.match(line)
        if defined and counts.get(defined[1]) == 1 and ".scope" not in line:
            continue
        line = _LABEL.sub(lambda m: numbers.setdefault(m[0], f"#{len(numbers)}"), line)
        is_named = any(word in line for word in (".scope", ".net", ".var", ".port_info", ".array"))
        form.append(_STRING.sub('""', line) if is_named else line)
    return form
