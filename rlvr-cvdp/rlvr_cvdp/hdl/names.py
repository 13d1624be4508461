"""
Reads Verilog text as tokens, to find names and to rename them.

Not by slang, for four reasons. A name must be hidden or taken out wherever it stands: in the text
of a macro, and in a branch of an `ifdef that slang skips and that yosys, with macros of its own,
compiles. An answer may be read here in the process that trains, so the time and the memory of it
are in proportion to its length. A request is prose with a header in it. And `hdl/ports.py` on
slang's tree was no shorter than on tokens: a macro in a width has no text of its own in the tree.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from attrs import frozen

_KINDS = r"""(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z)ATTRIBUTE)
    |(?P<string>"(?:\\.|[^"\\\n])*"?)
    |(?P<macro>`\w+)
    |(?P<system>\$\w+)
    |(?P<escaped>\\\S+)
    |(?P<number>\d[\w.]*|'[sS]?[bodhBODH]\s*[\w?]+|'[01xXzZ]\b)
    |(?P<name>[A-Za-z_][\w$]*)
    |(?P<blank>\s+)
    |(?P<sign>.)"""
_TOKEN, _NO_ATTRIBUTE = (
    re.compile(_KINDS.replace("ATTRIBUTE", attribute), re.DOTALL | re.VERBOSE)
    for attribute in (r"|\(\*(?!\s*\)).*?\*\)", "")
)
_DEFINES = {"module", "macromodule", "program", "interface", "package", "class"}
_NO_TYPE = {".", "task", "function", "module", "automatic", "]", "->"}
_LEADS = {"automatic", "static", "virtual"}
_KEYWORDS = """
always always_comb always_ff always_latch and assert assign assume automatic begin bit break buf
bufif0 bufif1 byte case casex casez class const continue cover default defparam disable do edge
else end endcase endclass endfunction endgenerate endinterface endmodule endpackage endprogram
endtask enum event expect extern final for forever fork function generate genvar if iff import
initial inout input inside int integer interface join join_any join_none localparam logic longint
macromodule modport module nand negedge nor not notif0 notif1 or output package parameter posedge
primitive priority program property pulldown pullup real realtime ref reg repeat return shortint
shortreal signed specify static string struct supply0 supply1 table task time timeprecision
timeunit tri tri0 tri1 triand trior type typedef union unique unsigned var virtual void wait while
wire with wor xnor xor
"""
KEYWORDS = frozenset(_KEYWORDS.split())


@frozen
class Token:
    """A piece of the text; kinds are the names of the pattern's groups."""

    kind: str
    text: str


def tokens(text: str) -> list[Token]:
    """All tokens, with blanks and comments; joined they give the text back."""
    found: list[Token] = []
    place = 0
    # No attribute is looked for where none can end: each "(*" would be a search to the end.
    for pattern, stop in ((_TOKEN, text.rfind("*)")), (_NO_ATTRIBUTE, len(text))):
        for match in pattern.finditer(text, place):
            if match.start() >= stop:
                break
            found.append(Token(match.lastgroup or "sign", match[0]))
            place = match.end()
    return found


def code(text: str) -> list[Token]:
    """The tokens that mean something to a compiler."""
    return [token for token in tokens(text) if token.kind not in ("comment", "blank")]


def module_names(text: str) -> list[str]:
    """Modules that the text defines, in order."""
    return modules_in(code(text))


def modules_in(found: Sequence[Token]) -> list[str]:
    """Modules that the tokens (`code`) define, in order."""
    return [name for kind, name in _definitions(found) if kind in ("module", "macromodule")]


def instantiated(text: str) -> set[str]:
    """Modules, or names that look like modules, that the text instantiates."""
    found = code(text)
    return {
        token.text
        for index, token in enumerate(found)
        if token.kind == "name"
        and token.text not in KEYWORDS
        and (not index or found[index - 1].text not in _NO_TYPE)
        and _instances(found, index)
    }


def scope_names(text: str) -> set[str]:
    """
    Names that a hierarchical reference could begin with or pass through.

    Modules, packages, tasks and functions that the text defines, instances, and named blocks.
    """
    found = code(text)
    names = {name for _, name in _definitions(found)}
    for index, token in enumerate(found):
        after = found[index + 1 : index + 3]
        if token.text in ("begin", "fork") and len(after) == 2 and after[0].text == ":":
            names.add(after[1].text)
        elif token.text in ("task", "function"):
            names.add(_routine(found, index))
        elif token.kind == "name" and token.text not in KEYWORDS:
            names |= _instances(found, index)
    return {name for name in names if re.fullmatch(r"[A-Za-z_][\w$]*", name)} - KEYWORDS


def renamed(text: str, names: Collection[str], suffix: str) -> str:
    """The text with a suffix on these names, except where one is a port in `.port(...)`."""
    all_tokens = tokens(text)
    means = [i for i, token in enumerate(all_tokens) if token.kind not in ("comment", "blank")]
    changed = [token.text for token in all_tokens]
    for place, index in enumerate(means):
        token = all_tokens[index]
        if token.kind != "name" or token.text not in names:
            continue
        before = all_tokens[means[place - 1]].text if place else ""
        earlier = all_tokens[means[place - 2]].text if place > 1 else ""
        if before == "." and earlier in ("(", ","):
            continue
        changed[index] = token.text + suffix
    return "".join(changed)


def defined_names(text: str) -> set[str]:
    """Modules, packages, interfaces, programs and classes that the text defines."""
    return {name for _, name in _definitions(code(text))}


def renamed_types(text: str, names: Collection[str], suffix: str) -> str:
    """
    The text with a suffix on these names, where they mean the module or package of that name.

    That is where they are defined, instantiated, imported or gone into (`kit::x`). A port or a
    signal of the same name keeps it.
    """
    all_tokens = tokens(text)
    means = [i for i, token in enumerate(all_tokens) if token.kind not in ("comment", "blank")]
    found = [all_tokens[index] for index in means]
    changed = [token.text for token in all_tokens]
    defined = False
    for place, token in enumerate(found):
        before = found[place - 1].text if place else ""
        ends = before == ":" and place > 1 and found[place - 2].text.startswith("end")
        defined = before in _DEFINES or (defined and before in _LEADS)
        is_gone_into = [t.text for t in found[place + 1 : place + 3]] == [":", ":"]
        if token.kind == "name" and token.text in names:
            is_type = before not in _NO_TYPE and bool(_instances(found, place))
            if defined or ends or is_gone_into or is_type:
                changed[means[place]] = token.text + suffix
    return "".join(changed)


def _definitions(found: Sequence[Token]) -> Iterator[tuple[str, str]]:
    for index, token in enumerate(found):
        is_only_named = index > 0 and found[index - 1].text == "extern"
        if token.kind == "name" and token.text in _DEFINES and not is_only_named:
            place = index + 1
            while place < len(found) and found[place].text in _LEADS:
                place += 1
            if place < len(found) and found[place].kind in ("name", "escaped"):
                yield token.text, found[place].text.removeprefix("\\")


def _routine(found: Sequence[Token], index: int) -> str:
    """The name of a task or function: the last name before its arguments."""
    name = ""
    depth = 0
    for token in found[index + 1 :]:
        depth += (token.text == "[") - (token.text == "]")
        if token.text in ("(", ";"):
            break
        if token.kind == "name" and not depth:
            name = token.text
    return name


def _instances(found: Sequence[Token], index: int) -> set[str]:
    """Names of the instances of the type at a place, none if it is not a type."""
    place = index + 1
    if place < len(found) and found[place].text == "#":
        place = _closed(found, place + 1)
    names = set()
    while place + 1 < len(found) and found[place].kind == "name":
        name = found[place].text
        place = _closed(found, place + 1) if found[place + 1].text == "[" else place + 1
        if place >= len(found) or found[place].text != "(" or name in KEYWORDS:
            break
        names.add(name)
        place = _closed(found, place)
        if place >= len(found) or found[place].text != ",":
            break
        place += 1
    return names


def _closed(found: Sequence[Token], place: int) -> int:
    """The place after the brackets that open at `place`; if none open there, the next place."""
    depth = 0
    for index in range(place, len(found)):
        depth += found[index].text in ("(", "[", "{")
        depth -= found[index].text in (")", "]", "}")
        if depth <= 0:
            return index + 1
    return len(found)
