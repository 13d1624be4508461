"""A process that parses Verilog with slang, apart from the process that trains.

Reads a JSON string a line, writes the definitions of that text as a JSON list a line. An answer
may be hostile: a crash, a memory bomb or an endless macro ends this process and nothing else.
Needs pyslang and the standard library only.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from typing import Any

CPU_S = 3
_MEMORY = 2_000_000_000
_DEPTH = 400
_KINDS = {"ModuleDeclaration", "InterfaceDeclaration", "PackageDeclaration", "ProgramDeclaration"}

_USES: dict[str, Callable[[Any], str]] = {
    "HierarchyInstantiation": lambda part: part.type.valueText,
    "PackageImportItem": lambda part: part.package.valueText,
    "InterfacePortHeader": lambda part: part.nameOrKeyword.valueText,
    "ScopedName": lambda part: part.left.getFirstToken().valueText,
}


def parsed(text: str) -> tuple[Any, Any]:
    """
    The syntax tree of a text, and the manager that knows which places are a macro's.

    Included files are never opened. Places count characters: all that is not ASCII is read as "?".
    """
    from pyslang import Bag, SourceManager
    from pyslang.parsing import LexerOptions, ParserOptions, PreprocessorOptions
    from pyslang.syntax import SyntaxTree

    manager = SourceManager()
    manager.setDisableLocalIncludes(True)
    preprocessor, parser, lexer = PreprocessorOptions(), ParserOptions(), LexerOptions()
    preprocessor.maxIncludeDepth = 0
    parser.maxRecursionDepth = _DEPTH
    lexer.maxErrors = 64
    plain = text.encode("ascii", "replace").decode()
    bag = Bag([preprocessor, parser, lexer])
    return SyntaxTree.fromText(plain, manager, "answer", "answer", bag), manager


def definitions(text: str) -> list[dict[str, Any]]:
    """
    Modules, interfaces, packages and programs of a text, in order, with their places.

    Definitions that a macro writes have no place and are left out.
    """
    tree, manager = parsed(text)
    members = getattr(tree.root, "members", None)
    is_unit = tree.root.kind.name == "CompilationUnit"
    found: list[dict[str, Any]] = []
    for node in members if is_unit and members is not None else [tree.root]:
        _collect(node, manager, found)
    return found


def _collect(node: Any, manager: Any, found: list[dict[str, Any]]) -> None:
    if node.kind.name not in _KINDS:
        return
    header, end = node.header, node.endmodule
    keyword = header.moduleKeyword
    if manager.isMacroLoc(keyword.location) or manager.isMacroLoc(header.name.location):
        return
    is_complete = not (end.isMissing or manager.isMacroLoc(end.location))
    stop = end.location.offset + len(end.rawText) if is_complete else node.sourceRange.end.offset
    if is_complete and node.blockName is not None:
        stop = max(stop, node.blockName.sourceRange.end.offset)
    uses: set[str] = set()
    inner: list[Any] = []

    def look(child: Any) -> None:
        kind = getattr(getattr(child, "kind", None), "name", "")
        if kind in _USES:
            uses.add(_USES[kind](child))
        elif kind in _KINDS and child is not node:
            inner.append(child)

    node.visit(look)
    ports = header.ports
    found.append(
        {
            "kind": keyword.rawText,
            "name": header.name.valueText,
            "start": keyword.location.offset,
            "end": stop,
            "is_complete": is_complete,
            "has_ports": ports is not None
            and len(str(ports).split()) > 1
            and "()" not in str(ports),
            "uses": sorted(uses),
        }
    )
    if not is_complete:
        for part in inner:
            _collect(part, manager, found)


def main() -> int:
    """Answer until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + CPU_S, hard))
        print(json.dumps(definitions(json.loads(line))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
