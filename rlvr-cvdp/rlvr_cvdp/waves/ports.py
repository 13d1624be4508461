"""Compares the values at two designs' ports, by the waveform (VCD) of one simulation each."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import takewhile

from attrs import field, frozen

_UNIT = re.compile(r"\$timescale\s+(10{0,2})\s*([munpf]?s)\s+\$end")
_FEMTO = {"s": 10**15, "ms": 10**12, "us": 10**9, "ns": 10**6, "ps": 10**3, "fs": 1}


@frozen(kw_only=True)
class Trace:
    """
    The values at ports: the width of each, and (time in femtoseconds, bits) for each change.

    If a port changes several times at one time, only the last value is kept. Bits are as in the
    VCD, which may leave out leading zeros, x or z: an answer may declare any width, and no text
    is made that long.
    """

    widths: Mapping[str, int]
    changes: Mapping[str, Collection[tuple[int, str]]] = field(repr=False)

    @property
    def known(self) -> set[str]:
        """The ports that once hold a value without x and z."""
        return {
            name
            for name, changes in self.changes.items()
            if any(not {*bits} - {"0", "1"} for _, bits in changes)
        }


def read_trace(text: str, top: str, ports: Collection[str]) -> Trace | None:
    """The trace of a VCD; None if it is cut off or broken, or a port is not in it."""
    head, found, body = text.partition("$enddefinitions $end")
    unit = _UNIT.search(head)
    if not found or unit is None:
        return None
    widths, names = _declared(head, top, ports)
    if set(widths) != set(ports):
        return None
    changes: dict[str, dict[int, str]] = {name: {} for name in ports}
    factor, now = int(unit[1]) * _FEMTO[unit[2]], 0
    try:
        for line in body.splitlines():
            if line[:1] == "#":
                now = int(line[1:]) * factor
            elif line[:1] in ("b", "B"):
                bits, _, code = line[1:].partition(" ")
                for name in names.get(code, ()):
                    changes[name][now] = bits
            elif line[:1] in ("0", "1", "x", "z"):
                for name in names.get(line[1:], ()):
                    changes[name][now] = line[0]
    except ValueError:
        return None
    return Trace(
        widths=widths, changes={name: tuple(sorted(at.items())) for name, at in changes.items()}
    )


def _declared(
    head: str, top: str, ports: Collection[str]
) -> tuple[dict[str, int], dict[str, list[str]]]:
    """The width of each port of the outermost module `top`, and the ports by their code."""
    widths: dict[str, int] = {}
    names: dict[str, list[str]] = {}
    scopes: list[str] = []
    words = iter(head.split())  # a code may be any characters, `$` too
    for word in words:
        if word == "$upscope":
            del scopes[-1:]
        elif word in ("$scope", "$var"):
            said = list(takewhile(lambda part: part != "$end", words))
            if word == "$scope":
                scopes.append(said[-1] if said else "")
            elif scopes == [top] and len(said) > 3 and said[1].isdigit() and said[3] in ports:
                widths[said[3]] = int(said[1])
                names.setdefault(said[2], []).append(said[3])
    return widths, names


def agree(golden: Trace, other: Trace) -> bool:
    """Whether the ports are equal at all times; an x of the golden design equals anything."""
    return golden.widths == other.widths and all(
        _is_equal(golden.widths[name], changes, other.changes[name])
        for name, changes in golden.changes.items()
    )


def _is_equal(
    width: int, golden: Collection[tuple[int, str]], other: Collection[tuple[int, str]]
) -> bool:
    is_golden = [(time, 0, bits) for time, bits in golden]
    is_other = [(time, 1, bits) for time, bits in other]
    both = sorted(is_golden + is_other)
    held = ["x", "x"]
    for place, (time, side, bits) in enumerate(both):
        held[side] = bits
        is_last = place + 1 == len(both) or both[place + 1][0] != time
        if is_last and not _fits(width, *held):
            return False
    return True


def _in_full(bits: str, width: int) -> str:
    return bits.rjust(width, bits[0] if bits[:1] in ("x", "z") else "0")


def _fits(width: int, golden: str, other: str) -> bool:
    golden, other = _in_full(golden, width), _in_full(other, width)
    if len(golden) != len(other):
        return False
    return golden == other or all(g in ("x", o) for g, o in zip(golden, other, strict=True))
