"""Number literals of Verilog: which other numbers stand one step beside them."""

from __future__ import annotations

import re

_SIZED = re.compile(r"(\d[\d_]*\s*)?('\s*[sS]?)([bBoOdDhH])(\s*)([0-9a-fA-F_]+)$")
_RADIX = {"b": 2, "o": 8, "d": 10, "h": 16}
_DIGITS = "0123456789abcdef"


def neighbours(literal: str) -> tuple[str, ...]:
    """
    The literals of value plus one and minus one, in the same base and size.

    A sized value wraps around, so `1'b0` has the one neighbour `1'b1`. Literals with x, z or ?,
    real numbers and times have none.
    """
    if literal in ("'0", "'1"):
        return ("'1" if literal == "'0" else "'0",)
    if re.fullmatch(r"\d[\d_]*", literal):
        value = int(literal.replace("_", ""))
        return tuple(str(v) for v in (value + 1, value - 1) if v >= 0)
    found = _SIZED.match(literal)
    if not found:
        return ()
    size_text, mark, base, gap, digits = found.groups()
    radix = _RADIX[base.lower()]
    try:
        value = int(digits.replace("_", ""), radix)
    except ValueError:
        return ()
    size = int(size_text.replace("_", "")) if size_text else 32
    if not 0 < size <= 4096 or value >= 1 << size:
        return ()
    values = dict.fromkeys(((value + 1) % (1 << size), (value - 1) % (1 << size)))
    width = len(digits.replace("_", "")) if radix != 10 else 1
    return tuple(
        f"{size_text or ''}{mark}{base}{gap}{_written(v, radix).rjust(width, '0')}"
        for v in values
        if v != value
    )


def _written(value: int, radix: int) -> str:
    text = ""
    while value or not text:
        value, digit = divmod(value, radix)
        text = _DIGITS[digit] + text
    return text
