"""One-place changes of a Verilog text, each of a kind of mistake that a harness should notice."""

from __future__ import annotations

from attrs import frozen

from rlvr_cvdp.audit.syntax import Walk
from rlvr_cvdp.hdl.names import tokens

_AROUND = 40
"""Characters that a note shows before and after the place."""


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
        """The line, the old text and the new text."""
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
    seen = {text}
    kept = []
    muted: set[int] = set()  # in a broken text slang may read an attribute as an expression
    place = 0
    for token in tokens(text):
        place += len(token.text)
        if token.kind == "comment":
            muted.update(range(place - len(token.text), place))
    for start, end, kind, new in sorted(Walk(text).changes()):
        if start in muted:
            continue
        edit = Edit(kind, start, end, new)
        changed = edit.apply(text)
        if changed not in seen:
            seen.add(changed)
            kept.append(edit)
    return kept
