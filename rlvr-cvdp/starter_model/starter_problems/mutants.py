"""One-operator mutants of a Verilog text: what a good harness has to reject."""

from __future__ import annotations

import re
from collections.abc import Iterator

from attrs import frozen

_TOKEN = re.compile(
    r"\d+'[bdh][0-9a-fA-F]+|\d+|[A-Za-z_$][\w$]*|>>>|<<|>>|<=|>=|==|!=|&&|\|\||\n|[ \t]+|."
)
_SIZED = re.compile(r"(\d+)'([bd])([01]+|\d+)$")
# An operator is not swapped for one that reachable states cannot tell apart, such as == for >=
# in a counter that never passes its last value.
_SWAPS: dict[str, tuple[str, ...]] = {
    "+": ("-",),
    "-": ("+",),
    "*": ("+",),
    "&": ("|", "^"),
    "|": ("&", "^"),
    "^": ("&", "|"),
    "==": ("!=",),
    "!=": ("==",),
    "<": ("<=", ">"),
    ">": (">=", "<"),
    "<=": ("<", ">="),
    ">=": (">", "<="),
    "<<": (">>",),
    ">>": ("<<",),
    ">>>": (">>", "<<"),
    "&&": ("||",),
    "||": ("&&",),
    "~": ("",),
    "!": ("",),
    "posedge": ("negedge",),
    "negedge": ("posedge",),
}
_DECLARES = ("input", "output", "logic", "reg", "wire")
_TERNARY = re.compile(r"\? ([\w'\[\]:{} +^~&|-]+?) : ([\w'\[\]:{} +^~&|-]+?)(?=[;)])")
_DIFFERENCE = re.compile(r"\b([a-zA-Z]\w*) - ([a-zA-Z]\w*)\b")
_PAIR = re.compile(r"\{([\w'\[\]:]+), ([\w'\[\]:]+)\}")
_SLICE_SHIFT = re.compile(r"\[(\d+):(\d+)\]")


@frozen
class Mutant:
    """A text that differs from its source in one place."""

    kind: str
    text: str


def mutants(source: str) -> list[Mutant]:
    """Every mutant of a text, in order of place; no two are equal, none equals the source."""
    seen = {source}
    kept = []
    for mutant in _candidates(source):
        if mutant.text not in seen:
            seen.add(mutant.text)
            kept.append(mutant)
    return kept


def _candidates(source: str) -> Iterator[Mutant]:
    lines = source.split("\n")
    for number, line in enumerate(lines):

        def changed(kind: str, text: str, at: int = number) -> Mutant:
            return Mutant(kind, "\n".join([*lines[:at], text, *lines[at + 1 :]]))

        words = line.split()
        if not words or words[0] in ("module", "endmodule"):
            continue
        if words[0] in _DECLARES:
            yield from (changed("width", text) for text in _widths(line))
            continue
        yield from (changed(kind, text) for kind, text in _tokens(line))
        yield from (changed(kind, text) for kind, text in _rewrites(line))
        if line.endswith(";") and words[0] not in ("assign", "end"):
            yield Mutant("dropped statement", "\n".join([*lines[:number], *lines[number + 1 :]]))


def _widths(line: str) -> Iterator[str]:
    """One bit less; a port also one bit more (a wider inner net often changes nothing)."""
    found = re.search(r"\[(\d+):0\]", line)
    is_port = line.split()[0] in ("input", "output")
    if not found:
        if is_port:
            yield re.sub(r"(\w+)(,?;?)$", r"[1:0] \1\2", line)
        return
    high = int(found[1])
    for value in (high - 1, high + 1) if is_port else (high - 1,):
        yield line[: found.start()] + f"[{value}:0]" + line[found.end() :]


def _tokens(line: str) -> Iterator[tuple[str, str]]:
    tokens = _TOKEN.findall(line)
    depth, index_depth, assigned = 0, 0, False
    for place, token in enumerate(tokens):
        depth += (token in "([{") - (token in ")]}") if len(token) == 1 else 0
        index_depth += (token == "[") - (token == "]")
        if token in (";", "begin", "else"):
            assigned = False
        options: tuple[str, ...] = ()
        if token in ("=", "<=") and depth == 0 and not assigned:
            assigned = True
        elif token in _SWAPS:
            options = _SWAPS[token]
        elif token.isdigit() or _SIZED.match(token):
            options = _constants(token, in_index=index_depth > 0)
        for option in options:
            kind = "constant" if token[0].isdigit() else f"{token} to {option or 'nothing'}"
            yield kind, "".join([*tokens[:place], option, *tokens[place + 1 :]])


def _constants(token: str, in_index: bool) -> tuple[str, ...]:
    sized = _SIZED.match(token)
    if not sized:
        value = int(token)
        return tuple(str(v) for v in (value + 1, value - 1) if v >= 0)
    size, base, digits = int(sized[1]), sized[2], sized[3]
    value, full = int(digits, 2 if base == "b" else 10), 1 << size
    values = {(value + 1) % full, (value - 1) % full} - {value}
    return tuple(f"{size}'{base}{format(v, 'b') if base == 'b' else v}" for v in sorted(values))


def _rewrites(line: str) -> Iterator[tuple[str, str]]:
    for found in re.finditer(r"\bif \((.*?)\)(?= [a-z{])", line):
        if found[1].count("(") == found[1].count(")"):
            yield "inverted condition", _put(line, found, f"if (!({found[1]}))")
    for found in _TERNARY.finditer(line):
        yield "swapped choices", _put(line, found, f"? {found[2]} : {found[1]}")
    for found in _DIFFERENCE.finditer(line):
        yield "swapped operands", _put(line, found, f"{found[2]} - {found[1]}")
    for found in _PAIR.finditer(line):
        yield "swapped parts", _put(line, found, f"{{{found[2]}, {found[1]}}}")
    for found in _SLICE_SHIFT.finditer(line):
        if int(found[2]) > 0:
            moved = f"[{int(found[1]) - 1}:{int(found[2]) - 1}]"
            yield "shifted index", _put(line, found, moved)
    for found in re.finditer(r" or (pos|neg)edge \w+", line):
        yield "lost event", _put(line, found, "")


def _put(line: str, found: re.Match[str], text: str) -> str:
    return line[: found.start()] + text + line[found.end() :]
