"""One design, written as different authors would write it."""

from __future__ import annotations

import re
from typing import Literal

from attrs import field, frozen


@frozen
class Port:
    """One port; ``kind`` says whether an output is driven by ``assign`` or by a process."""

    direction: Literal["input", "output"]
    name: str
    width: int = 1
    kind: Literal["wire", "reg"] = "wire"

    @property
    def text(self) -> str:
        """The port as specifications list it, such as ``input [3:0] a``."""
        return f"{self.direction} {span(self.width)}{self.name}"


@frozen(kw_only=True)
class Design:
    """
    A module in neutral form.

    ``body`` is indented by two spaces a level, declares with ``reg`` and ``wire`` and uses
    ``always_ff`` and ``always_comb``; a style turns these into its own words.
    """

    name: str
    ports: tuple[Port, ...]
    body: tuple[str, ...]


@frozen(kw_only=True)
class Style:
    """An author's habits. They change how a design looks, never what it does."""

    name: str
    indent: int = field(default=2, metadata={"help": "Spaces a level"})
    uses_logic: bool = field(default=False, metadata={"help": "SystemVerilog's words"})
    comb: str = field(default="always @(*)", metadata={"help": "Head of combinational processes"})
    has_port_section: bool = field(default=False, metadata={"help": "Ports declared in the body"})
    is_tight: bool = field(default=False, metadata={"help": "No blanks around operators"})
    begin_apart: bool = field(default=False, metadata={"help": "begin on its own line"})


CAREFUL = Style(name="careful", uses_logic=True, comb="always_comb")
ORDINARY = Style(name="ordinary", indent=4)
SLOPPY = Style(
    name="sloppy",
    indent=1,
    comb="always @*",
    has_port_section=True,
    is_tight=True,
    begin_apart=True,
)
STYLES = (CAREFUL, ORDINARY, SLOPPY)


def span(width: int) -> str:
    """``[3:0] `` for four bits, nothing for one."""
    return f"[{width - 1}:0] " if width > 1 else ""


def render(design: Design, style: Style) -> str:
    """Text of the module, ending in a newline."""
    tab = " " * style.indent
    ports = [_port(port, style) for port in design.ports]
    if style.has_port_section:
        lines = [f"module {design.name}({','.join(port.name for port in design.ports)});"]
        lines += [f"{port};" for port in ports]
    else:
        lines = [f"module {design.name} ("]
        lines += [f"{tab}{port}," for port in ports[:-1]] + [tab + ports[-1], ");"]
    for line in design.body:
        text = line.lstrip()
        depth = (len(line) - len(text)) // 2 + (0 if style.has_port_section else 1)
        lines += [tab * depth + piece for piece in _statement(text, style)]
    return "\n".join([*lines, "endmodule"]) + "\n"


def _port(port: Port, style: Style) -> str:
    word = "logic " if style.uses_logic else "reg " if port.kind == "reg" else ""
    return f"{port.direction} {word}{span(port.width)}{port.name}"


def _statement(text: str, style: Style) -> list[str]:
    if style.uses_logic:
        text = re.sub(r"^(reg|wire) ", "logic ", text)
    text = text.replace("always_comb", style.comb)
    if not style.uses_logic:
        text = text.replace("always_ff", "always")
    if style.is_tight:
        text = re.sub(r" ([-+*&|^<>=!?:]+) ", r"\1", text)
    if style.begin_apart and text.startswith("always") and text.endswith(" begin"):
        return [text.removesuffix(" begin"), "begin"]
    return [text]
