"""Finds clocks and resets among a design's inputs, by their names and by the code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from attrs import field, frozen

from rlvr import FrozenMap
from rlvr_cvdp.hdl.names import Token, code
from rlvr_cvdp.hdl.ports import Port

_CLOCK = re.compile(r"clk|clock|(^|_)ck($|_)", re.IGNORECASE)
_ENABLE = re.compile(r"en($|_|able)|div|sel|gate|count", re.IGNORECASE)
_RESET = re.compile(r"(?<!fi)(?<!bu)(?<!wo)rst|reset", re.IGNORECASE)
_CLEAR = re.compile(r"(^|_)(clear|clr|por)($|_)", re.IGNORECASE)
_LOW = re.compile(
    r"(rst|reset|clear|clr|por)_?(n|b|l|ni)$|_(n|ni|b|l)$|^a?n_?(rst|reset)", re.IGNORECASE
)


@frozen(kw_only=True)
class Clocking:
    """Clocks, and the level that each reset is active at. A design without clocks has neither."""

    clocks: tuple[str, ...] = ()
    resets: Mapping[str, int] = field(factory=dict, converter=FrozenMap)


def clocking_of(
    golden: str,
    inputs: Sequence[Port],
    *,
    clocks: Sequence[str] = (),
    resets: Mapping[str, int] | None = None,
) -> Clocking:
    """
    Clocks and resets among the inputs; those given by name are taken unchanged.

    A clock is named like one, or its edges trigger something and it is not named like a reset. A
    reset is named like one; where none is, a clear counts. It is active low where its name says so
    (`rst_n`, `nrst`), where its falling edge triggers, or where the code asks for its opposite
    (`if (!rst)`).
    """
    found = code(golden)
    edges = {(a.text, b.text) for a, b in _pairs(found, {"posedge", "negedge"})}
    narrow = [port.name for port in inputs if port.width == "1"]
    edged = {name for _, name in edges}
    if not clocks:
        clocks = [
            name
            for name in narrow
            if not _RESET.search(name)
            and (name in edged or (_CLOCK.search(name) and not _ENABLE.search(name)))
        ]
    if resets is None:
        negated = {
            found[i + 3].text
            for i in range(len(found) - 3)
            if (found[i].text, found[i + 1].text) == ("if", "(") and found[i + 2].text in "!~"
        }
        others = [name for name in narrow if name not in clocks and not _ENABLE.search(name)]
        named = [name for name in others if _RESET.search(name)]
        resets = {
            name: int(not (_LOW.search(name) or ("negedge", name) in edges or name in negated))
            for name in named or [name for name in others if _CLEAR.search(name)]
        }
    return Clocking(clocks=tuple(clocks), resets=resets)


def _pairs(found: Sequence[Token], words: set[str]) -> list[tuple[Token, Token]]:
    """Each of the words with the name after it, without an opening bracket between them."""
    pairs = []
    for index, token in enumerate(found[:-2]):
        if token.text in words:
            follower = found[index + 1]
            pairs.append((token, found[index + 2] if follower.text == "(" else follower))
    return pairs
