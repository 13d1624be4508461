"""
Walks the syntax tree of a Verilog text and collects the changes of one place each.

Headers of modules, parameters, assertions, delays, macros and the steps of loops are never
changed. slang reads the text in this process: references only, never answers of a policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from rlvr_cvdp.audit.expressions import Expressions, kind_of

Event: TypeAlias = tuple[Any, Any]
"""An edge of a sensitivity list, and the `or` before it, None before the first."""
_RESET = re.compile(r"rst|reset|clr|clear", re.IGNORECASE)
_GROUPS = {
    *("CompilationUnit", "ModuleDeclaration", "GenerateRegion", "GenerateBlock", "LoopGenerate"),
    *("IfGenerate", "ElseClause", "CaseGenerate", "StandardCaseItem", "DefaultCaseItem"),
    *("BlockStatement", "TimingControlStatement", "ForeverStatement", "ForeachLoopStatement"),
    *("FunctionDeclaration", "ParameterValueAssignment", "HierarchyInstantiation"),
    *("HierarchicalInstance", "WaitStatement"),
}
"""Nodes that only hold items and statements."""


class Walk(Expressions):
    """
    One walk over a text.

    Attributes:
        clocked: Number of processes that wait for an edge.
        clocked_assigns: Places of `=` and `<=` of assignments in them.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.clocked = 0
        self.clocked_assigns: set[int] = set()
        self._process: tuple[str, bool] = "", False  # its keyword, and whether it has a clock
        self._resets: set[str] | None = None  # where a statement may be the branch of a reset
        with suppress(RecursionError):  # nested too deep: what was found until there stays
            self._visit(self.tree.root)

    def _visit(self, node: Any) -> None:
        """Take the changes of an item or a statement and of those within it."""
        kind = kind_of(node)
        if kind in _GROUPS:
            for child in node:
                self._visit(child)
            return
        resets = self._resets
        if kind.endswith("Statement"):
            self._resets = None
        if kind == "ProceduralBlock":
            self._procedure(node)
        elif kind == "ConditionalStatement":
            self._if(node, resets)
        elif kind == "CaseStatement":
            self.expression(node.expr)
            for item in node.items:
                for label in getattr(item, "expressions", ()):
                    self.expression(label)
                self._visit(item.clause)
        elif kind == "ForLoopStatement":  # its step stays: it would never end
            for start in node.initializers:
                self.expression(start)
            self.expression(node.stopExpr)
            self._visit(node.statement)
        elif kind == "LoopStatement":
            if node.repeatOrWhile.rawText == "repeat":
                self.expression(node.expr)
            self._visit(node.statement)
        elif kind == "ReturnStatement":
            self.expression(node.returnValue)
        elif kind in ("NamedParamAssignment", "NamedPortConnection"):
            self.expression(node.expr)
        elif kind == "ContinuousAssign":
            for assignment in node.assignments:
                self._assigned(assignment)
        elif kind in ("ExpressionStatement", "ProceduralAssignStatement"):
            self._assignment(node)
        else:
            self._declaration(node, kind)

    def _procedure(self, node: Any) -> None:
        if node.keyword.rawText == "final":
            return
        control: Any = getattr(node.statement, "timingControl", None)
        events = _edges(control.expr) if kind_of(control) == "EventControlWithExpression" else ()
        edges = list(events)
        for _, event in edges:
            old = event.edge.rawText
            self.change("edge", event.edge, "negedge" if old == "posedge" else "posedge")
        for joined, event in edges[1:]:
            self.change("reset", (joined, event), "")
        self.clocked += bool(edges)
        self._process = node.keyword.rawText, bool(edges)
        self._resets = {str(event.expr).strip() for _, event in edges[1:]} if edges else None
        self._visit(node.statement)
        self._process, self._resets = ("", False), None

    def _if(self, node: Any, resets: set[str] | None) -> None:
        """An `if` with all its `else if`."""
        while kind_of(node) == "ConditionalStatement":
            asked, old = str(node.predicate), self.source(node.predicate)
            words = set(re.findall(r"[\w$]+", asked))
            is_reset = resets is not None and bool(words & resets or _RESET.search(asked))
            condition = "reset" if is_reset else "condition"
            is_word = not is_reset and old.isidentifier()
            self.change("polarity" if is_word else condition, node.predicate, f"!({old})")
            for constant in ("1'b0",) if is_reset else ("1'b0", "1'b1"):
                self.change(condition, node.predicate, constant)
            self.expression(node.predicate)
            before, self.in_reset = self.in_reset, self.in_reset or is_reset
            self._visit(node.statement)
            self.in_reset = before
            node, resets = getattr(node.elseClause, "clause", None), None
        self._visit(node)

    def _assignment(self, statement: Any) -> None:
        assignment = statement.expr
        if not assignment.kind.name.endswith("AssignmentExpression"):
            return
        operator = assignment.operatorToken
        keyword, is_clocked = self._process
        if operator.rawText in ("=", "<="):
            if keyword.startswith("always"):
                self.change("blocking", operator, "<=" if operator.rawText == "=" else "=")
            if is_clocked:
                self.clocked_assigns.add(operator.location.offset)
        kind = "reset" if self.in_reset else "dropped statement"
        self.change(kind, (statement, statement), ";")
        self._assigned(assignment)

    def _assigned(self, assignment: Any) -> None:
        if kind_of(assignment) == "BinaryExpression":
            self.value(assignment.right)
            self.indexes(assignment.left)

    def _declaration(self, node: Any, kind: str) -> None:
        """Take the changes of inner nets' ranges, and of initial values and local parameters."""
        holders = []
        if kind == "ParameterDeclarationStatement":
            node = node.parameter
            if node.keyword.rawText != "localparam" or kind_of(node) != "ParameterDeclaration":
                return
        elif kind == "NetDeclaration" or (
            kind == "DataDeclaration" and kind_of(node.type) == "IntegerType" and not node.modifiers
        ):
            holders = [node.type, *node.declarators]
        else:
            return
        for holder in holders:
            for dimension in list(getattr(holder, "dimensions", ()))[:1]:
                self._narrowed(getattr(dimension.specifier, "selector", None))
        for declarator in node.declarators:
            if kind_of(declarator) == "Declarator" and declarator.initializer is not None:
                self.expression(declarator.initializer.expr)

    def _narrowed(self, selected: Any) -> None:
        """One bit less: `[7:0]` to `[6:0]`, `[W-1:0]` to `[W-2:0]`."""
        if kind_of(selected) != "RangeSelect":
            return
        bound, step = selected.left, -1
        if bound.kind.name == "SubtractExpression":
            bound, step = bound.right, 1
        digits = self.source(bound)
        if digits.isdecimal() and int(digits) + step >= 0:
            self.change("width", bound, str(int(digits) + step))


def _edges(node: Any, joined: Any = None) -> Iterator[Event]:
    kind = kind_of(node)
    if kind == "ParenthesizedEventExpression":
        yield from _edges(node.expr, joined)
    elif kind == "BinaryEventExpression":
        yield from _edges(node.left, joined)
        yield from _edges(node.right, node.operatorToken)
    elif kind == "SignalEventExpression" and node.edge.rawText in ("posedge", "negedge"):
        yield joined, node


def is_raced(
    before: Mapping[str, str], after: Mapping[str, str], others: Iterable[str] = ()
) -> bool:
    """
    Whether `=` and `<=` were exchanged in one of several clocked processes.

    Then the change may show in the order of processes: with `=` another process sees the new value
    or the old one, depending on the simulator, and a synthesizer always takes the old one.

    Args:
        before: Files, path to text.
        after: The same files, one of them changed in one place.
        others: Texts of the rest of the design.
    """
    for path, text in before.items():
        changed = after.get(path, "")
        if text != changed and _is_exchanged_in_clocked(text, changed):
            return sum(Walk(other).clocked for other in (*before.values(), *others)) > 1
    return False


def _is_exchanged_in_clocked(text: str, changed: str) -> bool:
    pairs = enumerate(zip(text, changed, strict=False))
    place = next((i for i, (old, new) in pairs if old != new), 0)
    old, new = ("<=", "=") if text.startswith("<=", place) else ("=", "<=")
    is_exchanged = changed == text[:place] + new + text[place + len(old) :]
    return is_exchanged and place in Walk(text).clocked_assigns
