"""Changes within the expressions of a Verilog text, each a mistake of one place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from rlvr_cvdp.hdl.slang import parsed

Change: TypeAlias = tuple[int, int, str, str]
"""The place that is replaced, start and end, the kind of mistake, and what stands there then."""
_OPERATORS = {
    "+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "&": "| ^", "|": "& ^", "^": "& |",
    "~^": "^", "^~": "^", "&&": "||", "||": "&&", "==": "!=", "!=": "==", "===": "!==",
    "!==": "===", "<": ">=", "<=": ">", ">": "<=", ">=": "<", "<<": ">>", ">>": "<<", ">>>": ">>",
    "<<<": ">>>",
}  # fmt: skip
_COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_UNARY = {
    "~": ("polarity", ""), "!": ("polarity", ""), "-": ("operator", ""), "&": ("operator", "|"),
    "|": ("operator", "&"), "^": ("operator", "|"), "~&": ("polarity", "&"),
    "~|": ("polarity", "|"), "~^": ("polarity", "^"),
}  # fmt: skip
_NUMBERS = ("LiteralExpression", "IntegerVectorExpression")
_SIMPLE = ("IdentifierName", *_NUMBERS)
_SIZED = re.compile(r"(\d[\d_]*\s*)?('\s*[sS]?)([bBoOdDhH])(\s*)([0-9a-fA-F_]+)$")
_RADIX = {"b": 2, "o": 8, "d": 10, "h": 16}
_DIGITS = "0123456789abcdef"


def kind_of(node: Any) -> str:
    """The class of a node without its ending; "Token" for tokens, "NoneType" for nothing."""
    return type(node).__name__.removesuffix("Syntax")


def tree_of(text: str) -> tuple[Any, Any]:
    """As `parsed`; an empty text if this one is nested too deep for slang."""
    try:
        return parsed(text)
    except RuntimeError:
        return parsed("")


class Expressions:
    """Collects the changes of expressions; places are those of the text's characters."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.tree, self._manager = tree_of(text)
        self.in_reset = False
        self._found: list[Change] = []
        self._signals: list[Any] = []

    def changes(self) -> Iterator[Change]:
        """All changes; the last ones put a signal in the place of another one nearby."""
        yield from self._found
        names = [(self._place(token), self.source(token)) for token in self._signals]
        for i, (place, name) in enumerate(names):
            for beside in {other for _, other in names[max(i - 1, 0) : i + 2]} - {name}:
                if place:
                    yield *place, "name", beside + " " * beside.startswith("\\")

    def change(self, kind: str, node: Any, new: str) -> None:
        """Note a replacement of a node, or of all text from the first of a pair to the second."""
        place = self._place(node)
        if place:
            self._found.append((*place, kind, new))

    def source(self, node: Any) -> str:
        """The text of a node, "" where it has no place of its own (macros, missing words)."""
        place = self._place(node)
        return self._text[slice(*place)] if place else ""

    def value(self, node: Any) -> None:
        """Take the changes of the whole right-hand side of an assignment."""
        if kind_of(node) == "TimingControlExpression":  # a delay inside of the assignment
            node = node.expr
        old = self.source(node)
        if old and "//" not in old and "'{" not in old:
            self.change("reset" if self.in_reset else "polarity", node, f"~({old})")
            if kind_of(node) not in _NUMBERS and not self.in_reset:
                self.change("constant", node, "0")
        self.expression(node)

    def indexes(self, node: Any) -> None:
        """Take the changes of the indexes on the left-hand side of an assignment."""
        if kind_of(node) not in ("Token", "NoneType"):
            take = self.expression if kind_of(node) == "ElementSelect" else self.indexes
            for child in node:
                take(child)

    def expression(self, node: Any) -> None:
        """Take the changes of an expression, operator by operator; a sum may have thousands."""
        waiting = [(node, None, False)]
        while waiting:
            node, parent, in_index = waiting.pop()
            kind = kind_of(node)
            if kind in ("Token", "NoneType", "ScopedName", "TimingControlExpression"):
                continue
            in_index = in_index or kind == "ElementSelect"
            for what, place, new in self._changes(node, kind, parent, in_index):
                self.change("reset" if self.in_reset else what, place, new)
            if kind in ("IdentifierName", "IdentifierSelectName"):
                self._signals.append(node.identifier)
            is_call = kind in ("InvocationExpression", "CastExpression")
            inner = list(node)[1:] if is_call else list(node)
            waiting += [(child, node, in_index) for child in reversed(inner)]

    def _changes(
        self, node: Any, kind: str, parent: Any, in_index: bool
    ) -> Iterator[tuple[str, Any, str]]:
        operator = getattr(parent, "operatorToken", None)
        around = operator.rawText if operator is not None else ""
        if kind in _NUMBERS:
            for new in neighbours(self.source(node)):
                yield "off-by-one" if in_index or around in _COMPARISONS else "constant", node, new
        elif kind == "PrefixUnaryExpression" and node.operatorToken.rawText in _UNARY:
            what, new = _UNARY[node.operatorToken.rawText]
            yield what, node.operatorToken, new
        elif kind == "BinaryExpression":
            old = node.operatorToken.rawText
            if old in _COMPARISONS:
                yield "off-by-one", node.operatorToken, _COMPARISONS[old]
            for new in _OPERATORS.get(old, "").split():
                yield "operator", node.operatorToken, new
            is_alone = parent is None or kind_of(parent) == "ParenthesizedExpression"
            if old == "-" and is_alone:
                yield from self._swapped(node.left, node.right)
        elif kind == "ConcatenationExpression" and len(items := list(node.expressions)) == 3:
            yield from self._swapped(items[0], items[2])  # a comma is between them
        elif kind == "ConditionalExpression":
            yes, no = self.source(node.left), self.source(node.right)
            both = node.left, node.right
            if yes and no and yes != no and "//" not in self.source(both):
                yield "condition", both, f"({no}) : ({yes})"
        elif kind == "IdentifierName" and not in_index:
            name = self.source(node)
            if around in ("&&", "||"):
                yield "polarity", node, f"!{name} "
            elif around in _COMPARISONS and node == parent.right:
                yield "off-by-one", node, f"({name} + 1)"
                yield "off-by-one", node, f"({name} - 1)"

    def _swapped(self, left: Any, right: Any) -> Iterator[tuple[str, Any, str]]:
        """`a - b` alone becomes `b - a`, `{a, b}` becomes `{b, a}`."""
        first, last = self._place(left), self._place(right)
        if first and last and kind_of(left) in _SIMPLE and kind_of(right) in _SIMPLE:
            between = self._text[first[1] : last[0]]
            yield "operand", (left, right), self.source(right) + between + self.source(left)

    def _place(self, node: Any) -> tuple[int, int] | None:
        """The place of a node or token, or of all from one to another; None in macros."""
        first, last = node if isinstance(node, tuple) else (node, node)
        first = first if kind_of(first) == "Token" else first.getFirstToken()
        last = last if kind_of(last) == "Token" else last.getLastToken()
        for token in (first, last):
            if token.isMissing or not token.rawText or self._manager.isMacroLoc(token.location):
                return None
        return first.location.offset, last.location.offset + len(last.rawText)


def neighbours(literal: str) -> tuple[str, ...]:
    """
    The literals of value plus one and minus one, in the same base and size.

    A sized value wraps around, so `1'b0` has the one neighbour `1'b1`. Literals with x, z or ?,
    real numbers and times have none.
    """
    if literal in ("'0", "'1"):
        return ("'1" if literal == "'0" else "'0",)
    if re.fullmatch(r"\d[\d_]*", literal):
        value = int(literal.replace("_", ""))
        return tuple(str(v) for v in (value + 1, value - 1) if v >= 0)
    found = _SIZED.match(literal)
    if not found:
        return ()
    size_text, mark, base, gap, digits = found.groups()
    radix = _RADIX[base.lower()]
    try:
        value = int(digits.replace("_", ""), radix)
    except ValueError:
        return ()
    size = int(size_text.replace("_", "")) if size_text else 32
    if not 0 < size <= 4096 or value >= 1 << size:
        return ()
    values = dict.fromkeys(((value + 1) % (1 << size), (value - 1) % (1 << size)))
    width = len(digits.replace("_", "")) if radix != 10 else 1
    return tuple(
        f"{size_text or ''}{mark}{base}{gap}{_written(v, radix).rjust(width, '0')}"
        for v in values
        if v != value
    )


def _written(value: int, radix: int) -> str:
    text = ""
    while value or not text:
        value, digit = divmod(value, radix)
        text = _DIGITS[digit] + text
    return text
