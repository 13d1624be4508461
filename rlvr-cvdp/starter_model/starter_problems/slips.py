"""The slips that authors of the corpus make: in meaning, in syntax, in names."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from attrs import evolve

from .mutants import mutants
from .style import Design

HABITS = {
    "clk": "clock",
    "clock": "clk",
    "rst": "reset",
    "reset": "rst",
    "rst_n": "rst",
    "reset_n": "rst_n",
    "en": "enable",
    "enable": "en",
    "y": "out",
    "q": "out",
    "d": "in",
    "count": "cnt",
}


def slip_in_meaning(design: Design, rng: random.Random) -> Design:
    """One mutation of the body or one port of another width; the text stays well formed."""
    if rng.random() < 0.08:
        place = rng.randrange(len(design.ports))
        port = design.ports[place]
        width = max(1, port.width + rng.choice((-1, 1)))
        if width != port.width:
            ports = list(design.ports)
            ports[place] = evolve(port, width=width)
            return evolve(design, ports=tuple(ports))
    found = mutants("\n".join(design.body))
    return evolve(design, body=tuple(rng.choice(found).text.split("\n")))


def slip_in_names(design: Design, rng: random.Random) -> Design:
    """Another module name, or a port under the author's habitual name."""
    known = [port.name for port in design.ports if port.name in HABITS]
    if not known or rng.random() < 0.4:
        short, _, _ = design.name.rpartition("_")
        return evolve(design, name=short or f"{design.name}_top")
    old = rng.choice(known)
    new = HABITS[old]
    ports = tuple(evolve(p, name=new if p.name == old else p.name) for p in design.ports)
    return evolve(
        design, ports=ports, body=tuple(re.sub(rf"\b{old}\b", new, line) for line in design.body)
    )


def _without_semicolon(text: str, rng: random.Random) -> str:
    return _without(text, ";", rng)


def _without_end(text: str, rng: random.Random) -> str:
    ends = [found.start() for found in re.finditer(r"\bend\n", text)]
    if not ends:
        return text.replace("endmodule\n", "")
    place = rng.choice(ends)
    return text[:place].rstrip(" ") + text[place + 4 :]


def _without_endmodule(text: str, rng: random.Random) -> str:
    return text.replace("endmodule\n", "")


def _without_parenthesis(text: str, rng: random.Random) -> str:
    return _without(text, ")", rng)


def _misspelt(text: str, rng: random.Random) -> str:
    names = list(re.finditer(r"\b[a-z_]{3,}\b", text[text.index(");") :]))
    found = rng.choice(names)
    place = text.index(");") + found.start() + rng.randrange(1, len(found[0]))
    return text[:place] + text[place + 1 :]


SYNTAX_SLIPS: tuple[Callable[[str, random.Random], str], ...] = (
    _without_semicolon,
    _without_end,
    _without_endmodule,
    _without_parenthesis,
    _misspelt,
)


def slip_in_syntax(text: str, rng: random.Random) -> str:
    """A rendered module that no compiler takes."""
    return rng.choice(SYNTAX_SLIPS)(text, rng)


def _without(text: str, sign: str, rng: random.Random) -> str:
    place = rng.choice([k for k, c in enumerate(text) if c == sign])
    return text[:place] + text[place + 1 :]
