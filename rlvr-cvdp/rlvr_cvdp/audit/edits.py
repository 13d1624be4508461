"""One-place changes of a Verilog text, each of a kind of mistake that a harness should notice."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from rlvr_cvdp.audit.literals import neighbours
from rlvr_cvdp.audit.reader import read_structure
from rlvr_cvdp.audit.structure import Structure

_BINARY: dict[str, tuple[tuple[str, str], ...]] = {
    "+": (("operator", "-"),),
    "-": (("operator", "+"),),
    "*": (("operator", "+"),),
    "/": (("operator", "*"),),
    "%": (("operator", "/"),),
    "&": (("operator", "|"), ("operator", "^")),
    "|": (("operator", "&"), ("operator", "^")),
    "^": (("operator", "&"), ("operator", "|")),
    "~^": (("operator", "^"),),
    "^~": (("operator", "^"),),
    "&&": (("operator", "||"),),
    "||": (("operator", "&&"),),
    "==": (("operator", "!="),),
    "!=": (("operator", "=="),),
    "===": (("operator", "!=="),),
    "!==": (("operator", "==="),),
    "<": (("off-by-one", "<="), ("operator", ">=")),
    "<=": (("off-by-one", "<"), ("operator", ">")),
    ">": (("off-by-one", ">="), ("operator", "<=")),
    ">=": (("off-by-one", ">"), ("operator", "<")),
    "<<": (("operator", ">>"),),
    ">>": (("operator", "<<"),),
    ">>>": (("operator", ">>"),),
    "<<<": (("operator", ">>>"),),
}
_UNARY: dict[str, tuple[tuple[str, str], ...]] = {
    "~": (("polarity", ""),),
    "!": (("polarity", ""),),
    "-": (("operator", ""),),
    "&": (("operator", "|"),),
    "|": (("operator", "&"),),
    "^": (("operator", "|"),),
    "~&": (("polarity", "&"),),
    "~|": (("polarity", "|"),),
    "~^": (("polarity", "^"),),
}
_AROUND = 40
"""Characters that a note shows before and after the place."""

_COMPARES = frozenset(["<", "<=", ">", ">="])
_JOINS = frozenset(["&&", "||", "("])
_ENDS = frozenset(["&&", "||", ")"])


@frozen
class Edit:
    """Replaces the characters `start` to `end` of a text by `new`."""

    kind: str
    start: int
    end: int
    new: str

    def apply(self, text: str) -> str:
        """The text with this one place changed."""
        return text[: self.start] + self.new + text[self.end :]

    def note(self, text: str) -> str:
        """The line, what stood there and what stands there now."""
        line = text.count("\n", 0, self.start) + 1
        first = max(text.rfind("\n", 0, self.start) + 1, self.start - _AROUND)
        last = min(text.find("\n", self.start) % (len(text) + 1), self.end + _AROUND)
        old, new, place = (
            " ".join(part.split())
            for part in (text[self.start : self.end], self.new, text[first : max(last, self.end)])
        )
        return f"line {line}: {old or 'nothing'} -> {new or 'nothing'} in: {place}"


def edits(text: str) -> list[Edit]:
    """Every change of the text, in order of place; no two give equal texts."""
    structure = read_structure(text)
    found = [*_expressions(structure), *_conditions(structure), *_assignments(structure)]
    found += [*_edges(structure), *_ranges(structure), *_names(structure)]
    seen = {text}
    kept = []
    for edit in sorted(found, key=lambda e: (e.start, e.end, e.kind, e.new)):
        changed = edit.apply(text)
        if changed not in seen:
            seen.add(changed)
            kept.append(edit)
    return kept


def _expressions(s: Structure) -> Iterator[Edit]:
    for span in s.expressions:
        depth = 0
        for i in range(span.first, span.last + 1):
            token = s.tokens[i]
            depth += (token.text == "[") - (token.text == "]")
            for kind, new in _changes(s, span.first, i, span.last, depth > 0):
                yield Edit("reset" if span.in_reset else kind, token.start, token.end, new)
            if token.text == "?":
                yield from _swapped_choices(s, i, span.last)
            yield from _swapped_operands(s, span.first, i, span.last)
    for span in s.values:
        start, end = s.tokens[span.first].start, s.tokens[span.last].end
        old = _text(s, span.first, span.last)
        if "//" in old or "'{" in old:
            continue
        is_number = span.first == span.last and s.tokens[span.first].kind == "number"
        yield Edit("reset" if span.in_reset else "polarity", start, end, f"~({old})")
        if not is_number and not span.in_reset:
            yield Edit("constant", start, end, "0")


def _names(s: Structure) -> Iterator[Edit]:
    """A signal in place of another one that stands nearby in the same kind of place."""
    places = [
        i
        for span in s.expressions
        for i in range(span.first, span.last + 1)
        if s.tokens[i].kind == "word" and _is_signal(s, i, span.last)
    ]
    for i, place in enumerate(places):
        token = s.tokens[place]
        for beside in {*places[max(i - 1, 0) : i], *places[i + 1 : i + 2]}:
            if s.tokens[beside].text != token.text:
                yield Edit("name", token.start, token.end, s.tokens[beside].text)


def _is_signal(s: Structure, i: int, last: int) -> bool:
    after = s.tokens[i + 1].text if i < last else ""
    before = s.tokens[i - 1].text if i else ""
    return after not in ("(", "::", "'", ".") and before not in (".", "::", "#")


def _changes(
    s: Structure, first: int, i: int, last: int, in_index: bool
) -> Iterator[tuple[str, str]]:
    """Kinds and replacements of the single token at `i`."""
    token = s.tokens[i]
    before = s.tokens[i - 1].text if i > first else ""
    after = s.tokens[i + 1].text if i < last else ""
    if token.kind == "number":
        if before in ("#", "'"):
            return
        is_bound = in_index or before in _COMPARES or after in _COMPARES
        for new in neighbours(token.text):
            yield "off-by-one" if is_bound else "constant", new
    elif token.kind == "symbol":
        is_binary = i > first and (
            s.tokens[i - 1].kind in ("number", "word", "string", "directive")
            or before in (")", "]", "}")
        )
        yield from (_BINARY if is_binary else _UNARY).get(token.text, ())
    elif token.kind == "word" and not in_index:
        is_alone = (not before or before in _JOINS) and (not after or after in _ENDS)
        if is_alone and (before in ("&&", "||") or after in ("&&", "||")):
            yield "polarity", f"!{token.text} "
        if before in _COMPARES and (not after or after in _ENDS or after == ";"):
            yield "off-by-one", f"({token.text} + 1)"
            yield "off-by-one", f"({token.text} - 1)"


def _swapped_choices(s: Structure, place: int, last: int) -> Iterator[Edit]:
    """`? a : b` becomes `? b : a`."""
    middle = _next(s, place + 1, last, (":",))
    if middle is None:
        return
    stop = _next(s, middle + 1, last, (":", ",", ")", "}", "]", ";"))
    end = last if stop is None else stop - 1
    if middle - 1 < place + 1 or end < middle + 1:
        return
    yes = _text(s, place + 1, middle - 1)
    no = _text(s, middle + 1, end)
    start, finish = s.tokens[place + 1].start, s.tokens[end].end
    if "//" in s.text[start:finish] or yes == no:
        return
    yield Edit("condition", start, finish, f"({no}) : ({yes})")


def _next(s: Structure, place: int, last: int, stops: tuple[str, ...]) -> int | None:
    depth = choices = 0
    for i in range(place, last + 1):
        word = s.tokens[i].text
        if depth == 0 and choices == 0 and word in stops:
            return i
        choices += (word == "?") - (word == ":" and depth == 0)
        depth += (word in ("(", "[", "{", "'{")) - (word in (")", "]", "}"))
        if depth < 0:
            return None
    return None


def _swapped_operands(s: Structure, first: int, i: int, last: int) -> Iterator[Edit]:
    """`a - b` alone becomes `b - a`, `{a, b}` becomes `{b, a}`."""
    if not first < i < last or s.tokens[i].text not in ("-", ","):
        return
    left, right = s.tokens[i - 1], s.tokens[i + 1]
    before = s.tokens[i - 2].text if i - 2 >= first else ""
    after = s.tokens[i + 2].text if i + 2 <= last else ""
    is_pair = s.tokens[i].text == "," and (before, after) == ("{", "}")
    is_difference = s.tokens[i].text == "-" and before in ("", "(") and after in ("", ")", ";")
    plain = ("word", "number")
    if (is_pair or is_difference) and left.kind in plain and right.kind in plain:
        between = s.text[left.end : right.start]
        yield Edit("operand", left.start, right.end, f"{right.text}{between}{left.text}")


def _conditions(s: Structure) -> Iterator[Edit]:
    for condition in s.conditions:
        if condition.kind != "if" or condition.first > condition.last:
            continue
        start, end = s.tokens[condition.first].start, s.tokens[condition.last].end
        old = _text(s, condition.first, condition.last)
        is_plain = condition.first == condition.last
        kind = "reset" if condition.is_reset else "polarity" if is_plain else "condition"
        yield Edit(kind, start, end, f"!({old})")
        yield Edit("reset" if condition.is_reset else "condition", start, end, "1'b0")
        if not condition.is_reset:
            yield Edit("condition", start, end, "1'b1")


def _assignments(s: Structure) -> Iterator[Edit]:
    for assignment in s.assignments:
        process = s.processes[assignment.process]
        op, semicolon = s.tokens[assignment.op], s.tokens[assignment.last]
        if process.kind.startswith("always") and op.text in ("=", "<="):
            yield Edit("blocking", op.start, op.end, "<=" if op.text == "=" else "=")
        kind = "reset" if assignment.in_reset else "dropped statement"
        yield Edit(kind, s.tokens[assignment.first].start, semicolon.end, ";")


def _edges(s: Structure) -> Iterator[Edit]:
    for i in s.edges:
        token = s.tokens[i]
        new = "negedge" if token.text == "posedge" else "posedge"
        yield Edit("edge", token.start, token.end, new)
    for first, last in s.extra_edges:
        yield Edit("reset", s.tokens[first].start, s.tokens[last].end, "")


def _ranges(s: Structure) -> Iterator[Edit]:
    """One bit less in an inner net: `[7:0]` to `[6:0]`, `[W-1:0]` to `[W-2:0]`."""
    for first, last in s.ranges:
        colon = _next(s, first, last, (":",))
        if colon is None or colon == first:
            continue
        token = s.tokens[colon - 1]
        if token.kind != "number" or not token.text.isdecimal():
            continue
        value = int(token.text)
        if colon - 1 == first and value > 0:
            yield Edit("width", token.start, token.end, str(value - 1))
        elif s.tokens[colon - 2].text == "-":
            yield Edit("width", token.start, token.end, str(value + 1))


def _text(s: Structure, first: int, last: int) -> str:
    return s.text[s.tokens[first].start : s.tokens[last].end]
