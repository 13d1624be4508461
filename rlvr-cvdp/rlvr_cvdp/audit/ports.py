"""Modules without their logic: the right ports, and outputs that are driven by nothing or stuck."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from rlvr_cvdp.audit.cursor import CLOSES, OPENS
from rlvr_cvdp.audit.tokens import Token, tokenize

_DIRECTIONS = frozenset(["input", "output", "inout"])
_VARIABLES = frozenset(["reg", "logic", "bit", "int", "integer", "byte"])
_KEPT = _DIRECTIONS | {"parameter", "localparam", "typedef", "import"}


@frozen
class _Output:
    name: str
    is_variable: bool


def stub(text: str) -> str:
    """The text with every module's body taken out: ports and nothing else."""
    return _hollow(text, "")


def constant(text: str, value: str) -> str:
    """The text with every module's body replaced by outputs that never leave `value`."""
    return _hollow(text, value)


def _hollow(text: str, value: str) -> str:
    tokens = [token for token in tokenize(text) if token.is_code]
    pieces: list[str] = []
    done = i = 0
    while i < len(tokens):
        if tokens[i].text not in ("module", "macromodule"):
            i += 1
            continue
        semicolon = _find(tokens, i, ";")
        end = _find(tokens, semicolon, "endmodule")
        if end == len(tokens):
            break
        body = _kept(text, tokens[semicolon + 1 : end])
        outputs = _outputs(tokens[i:end])
        lines = [_drive(output, value) for output in outputs] if value else []
        pieces += [text[done : tokens[semicolon].end], "\n", *body, *lines]
        done, i = tokens[end].start, end + 1
    return "".join([*pieces, text[done:]])


def _drive(output: _Output, value: str) -> str:
    how = "initial" if output.is_variable else "assign"
    return f"  {how} {output.name} = {value};\n"


def _find(tokens: Sequence[Token], start: int, wanted: str) -> int:
    depth = 0
    for i in range(start, len(tokens)):
        word = tokens[i].text
        depth += (word in OPENS) - (word in CLOSES)
        if depth == 0 and word == wanted:
            return i
    return len(tokens)


def _kept(text: str, body: Sequence[Token]) -> list[str]:
    """Declarations of ports, parameters and types in the body of a module."""
    lines = []
    i, is_start = 0, True
    while i < len(body):
        if is_start and body[i].text in _KEPT:
            end = min(_find(body, i, ";"), len(body) - 1)
            lines.append(f"  {text[body[i].start : body[end].end]}\n")
            i = end
        elif body[i].text in ("function", "task"):
            i = _find(body, i, "end" + body[i].text)
        is_start = i < len(body) and body[i].text in (";", "endfunction", "endtask")
        i += 1
    return lines


def _outputs(module: Sequence[Token]) -> list[_Output]:
    """Output ports, whether declared in the header or in the body."""
    found: dict[str, _Output] = {}
    direction, is_variable, name, depth = "", False, "", 0
    for i, token in enumerate(module):
        word = token.text
        if word in _DIRECTIONS:
            direction, is_variable, name = word, False, ""
            depth = 0
        elif not direction:
            continue
        elif word in OPENS:
            depth += 1
        elif depth == 0 and word in (",", ";", ")"):
            if direction == "output" and name:
                found[name] = _Output(name, is_variable)
            name = ""
            # a port list goes on with the same direction; a declaration in a body ends
            direction = "" if word in (";", ")") else direction
        elif word in CLOSES:
            depth -= 1
        elif depth == 0 and word == "=":
            depth = 0
        elif depth == 0 and token.kind == "word":
            is_variable = is_variable or word in _VARIABLES
            previous = module[i - 1].text
            name = name if previous == "=" else word
    return [output for output in found.values() if output.name not in _VARIABLES]
