"""Modules without their logic: the right ports, and outputs without a driver or stuck."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlvr_cvdp.audit.expressions import kind_of, tree_of

_VARIABLES = ("reg", "logic", "bit", "int", "integer", "byte")
_KEPT = (
    *("PortDeclaration", "ParameterDeclarationStatement", "TypedefDeclaration"),
    "PackageImportDeclaration",
)


def hollow(text: str, value: str) -> str:
    """The text with every module's body replaced by outputs that stay at `value`; "": by none."""
    tree, manager = tree_of(text)
    root = tree.root
    pieces: list[str] = []
    done = 0
    for module in root.members if kind_of(root) == "CompilationUnit" else [root]:
        is_module = module.kind.name == "ModuleDeclaration" and not module.endmodule.isMissing
        semicolon = module.header.semi if is_module else None
        if semicolon is None or manager.isMacroLoc(semicolon.location):
            continue
        body = [
            f"  {text[item.sourceRange.start.offset : item.sourceRange.end.offset]}\n"
            for item in module.members
            if kind_of(item) in _KEPT
        ]
        for name, is_variable in dict(_outputs(module)).items() if value else ():
            body.append(f"  {'initial' if is_variable else 'assign'} {name} = {value};\n")
        pieces += [text[done : semicolon.location.offset + 1], "\n", *body]
        done = module.endmodule.location.offset
    return "".join([*pieces, text[done:]])


def _outputs(module: Any) -> Iterator[tuple[str, bool]]:
    """Output ports and whether each is a variable, declared in the header or in the body."""
    direction, is_variable = "", False
    for port in [*(getattr(module.header.ports, "ports", None) or ()), *module.members]:
        if kind_of(port) not in ("ImplicitAnsiPort", "PortDeclaration"):
            continue
        declared = getattr(port.header, "direction", None)
        if declared is None:  # an interface
            direction = ""
            continue
        word = port.header.dataType.getFirstToken().rawText
        if declared.rawText or word:
            direction, is_variable = declared.rawText or direction, word in _VARIABLES
        named = [port.declarator] if kind_of(port) == "ImplicitAnsiPort" else port.declarators
        for declarator in named if direction == "output" else ():
            if kind_of(declarator) == "Declarator":
                yield declarator.name.valueText, is_variable
