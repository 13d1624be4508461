"""Ports of a Verilog module, read from its header, with widths as expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile

from attrs import field, frozen

from rlvr import FrozenMap
from rlvr_cvdp.hdl.names import KEYWORDS, Token, code

_DIRECTIONS = {"input", "output", "inout", "ref"}
_WIDTHS = {"byte": "8", "shortint": "16", "int": "32", "integer": "32", "longint": "64",
           "time": "64"}  # fmt: skip
_ENDS = ("endfunction", "endtask")
_PLAIN = {"wire", "reg", "logic", "bit", "var", "tri", "signed", "unsigned"}


class PortsError(ValueError):
    """The ports cannot be driven by a program that reads only text; the message says why."""


@frozen
class Port:
    """A port; `width` is an expression over the module's parameters."""

    direction: str
    name: str
    width: str


@frozen(kw_only=True)
class Header:
    """
    The ports and parameters of a module.

    `parameters` maps the names that widths may use to their default expressions, in order.
    """

    ports: tuple[Port, ...]
    parameters: Mapping[str, str] = field(factory=dict, converter=FrozenMap)

    def named(self, direction: str) -> list[Port]:
        """Ports of one direction."""
        return [port for port in self.ports if port.direction == direction]


def header_of(text: str, module: str) -> Header:
    """
    Ports and parameters of a module, declared in its header or in its body.

    Raises:
        PortsError: There is no such module, or a port is an array, an interface, of a named type,
            or `inout`.
    """
    body = _module(text, module)
    if not body:
        raise PortsError(f"there is no module {module}")
    place = next(i for i, t in enumerate(body) if t.text == module) + 1
    parameters: dict[str, str] = {}
    while place < len(body) and body[place].text == "import":
        place = next((i for i in range(place, len(body)) if body[i].text == ";"), len(body)) + 1
    if place + 1 < len(body) and body[place].text == "#":
        inside, place = _brackets(body, place + 1)
        parameters.update(_parameters(inside))
    listed: list[Token] = []
    if place < len(body) and body[place].text == "(":
        listed, place = _brackets(body, place)
    items = [item for item in _split(listed) if item]
    if items and items[0][0].text in _DIRECTIONS:
        ports = list(_ports(items))
    else:
        declared = list(_declarations(body[place:], _DIRECTIONS))
        ports = [port for one in declared for port in _ports(_split(one))]
        for one in _declarations(body[place:], {"parameter"}):
            parameters.update(_parameters(one[1:]))
        missing = {item[0].text for item in items} - {port.name for port in ports}
        if missing:
            raise PortsError(f"no direction is declared for the port {sorted(missing)[0]}")
    if not any(port.direction == "output" for port in ports):
        raise PortsError(f"the module {module} has no output")
    if any(port.direction not in ("input", "output") for port in ports):
        raise PortsError(f"the module {module} has a port that is neither input nor output")
    return Header(ports=tuple(ports), parameters=_needed(ports, parameters))


def parameters_of(text: str, module: str) -> dict[str, int]:
    """The parameters of a module that may be set from outside and whose default is a number."""
    found = _module(text, module)
    values: dict[str, int] = {}
    is_open = False
    for place, token in enumerate(found):
        word = token.text
        if word in ("parameter", "localparam", ";"):  # no bracket: a value may have some
            is_open = word == "parameter"
        after = [one.text for one in found[place + 1 : place + 4]]
        match after:
            case ["=", value, "," | ")" | ";"] if is_open and token.kind == "name":
                values |= {word: int(value)} if value.isdecimal() else {}
    return values


def _module(text: str, module: str) -> list[Token]:
    """The tokens of a module, from `module` to before `endmodule`; none if it is not there."""
    found = code(text)
    starts = (i for i, token in enumerate(found[:-1]) if token.text == "module")
    start = next(
        (i for i in starts if module in (t.text for t in found[i + 1 : i + 3])), len(found)
    )
    return list(takewhile(lambda token: token.text != "endmodule", islice(found, start, None)))


def _ports(items: Sequence[Sequence[Token]]) -> Iterator[Port]:
    direction, width = "", "1"
    for item in items:
        tokens = list(item)
        if any(token.kind in ("escaped", "macro") and token.text != "=" for token in tokens[:1]):
            raise PortsError(f"the port {tokens[0].text} cannot be read")
        if tokens and tokens[0].text in _DIRECTIONS:
            direction, width = tokens.pop(0).text, "1"
        is_typed = False
        factors: list[str] = []
        while tokens and (tokens[0].text in _PLAIN | set(_WIDTHS) or tokens[0].text == "["):
            is_typed = True
            if tokens[0].text == "[":
                inside, after = _brackets(tokens, 0)
                factors.append(_size(inside))
                tokens = tokens[after:]
            else:
                factors += [_WIDTHS[tokens[0].text]] if tokens[0].text in _WIDTHS else []
                tokens.pop(0)
        if not tokens or tokens[0].kind != "name" or tokens[0].text in KEYWORDS:
            raise PortsError("a port has no name that can be read")
        if len(tokens) > 1 and tokens[1].text != "=":
            kind = "an array" if tokens[1].text == "[" else "of a named type"
            raise PortsError(f"a port is {kind}: {' '.join(t.text for t in tokens[:2])}")
        if is_typed:
            width = "*".join(factors) or "1"
        yield Port(direction, tokens[0].text, width)


def _size(inside: Sequence[Token]) -> str:
    parts = _split(inside, ":")
    if len(parts) != 2:
        raise PortsError("a range of a port cannot be read")
    high, low = (f"({' '.join(token.text for token in part)})" for part in parts)
    return f"(({high} > {low} ? {high} - {low} : {low} - {high}) + 1)"


def _parameters(inside: Sequence[Token]) -> Iterator[tuple[str, str]]:
    for item in _split(inside):
        place = next((i for i, token in enumerate(item) if token.text == "="), 0)
        if any(token.text == "type" for token in item[:place]):
            raise PortsError("a parameter of it is a type")
        if place and item[place - 1].kind == "name":
            yield item[place - 1].text, " ".join(token.text for token in item[place + 1 :])


def _needed(ports: Sequence[Port], parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters that widths use, in order."""
    wanted = {token.text for port in ports for token in code(port.width)}
    for name in reversed(list(parameters)):
        if name in wanted:
            wanted |= {token.text for token in code(parameters[name])}
    return {name: text for name, text in parameters.items() if name in wanted}


def _declarations(body: Sequence[Token], words: set[str]) -> Iterator[list[Token]]:
    """Statements at a module's top level that begin with one of the words."""
    routine = False
    index = 0
    while index < len(body):
        text = body[index].text
        routine = text in ("function", "task") or (routine and text not in _ENDS)
        if text in words and not routine:
            end = next((i for i in range(index, len(body)) if body[i].text == ";"), len(body))
            yield list(body[index:end])
            index = end
        index += 1


def _brackets(tokens: Sequence[Token], place: int) -> tuple[list[Token], int]:
    """The tokens in the brackets that open at `place`, and the place after them."""
    depth = 0
    for index in range(place, len(tokens)):
        depth += tokens[index].text in ("(", "[", "{")
        depth -= tokens[index].text in (")", "]", "}")
        if not depth:
            return list(tokens[place + 1 : index]), index + 1
    raise PortsError("a bracket of its header is not closed")


def _split(tokens: Sequence[Token], at: str = ",") -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += token.text in ("(", "[", "{")
        depth -= token.text in (")", "]", "}")
        if token.text == at and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
