"""Walking over the code tokens of a text: brackets, ends, what comes next."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_cvdp.audit.structure import Span, Structure


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


OPENS, CLOSES = frozenset(["(", "[", "{", "'{"]), frozenset([")", "]", "}"])
ENDS = words(
    "end endmodule endcase endfunction endtask endgenerate endinterface endprogram endpackage "
    "endproperty endsequence endgroup endspecify endclocking endclass endtable"
)


class Unreadable(Exception):
    """A construct that the reader does not know."""


class Cursor:
    """A place in the code tokens. `at` is what is read next."""

    def __init__(self, structure: Structure) -> None:
        self.out = structure
        self.words: Sequence[str] = [token.text for token in structure.tokens]
        self.at = 0
        self.reset_depth = 0

    def word(self, offset: int = 0) -> str:
        """The token `offset` after the current one, "" past the end."""
        place = self.at + offset
        return self.words[place] if place < len(self.words) else ""

    def close(self, place: int) -> int:
        """
        The place of the bracket that closes the one at `place`.

        Raises:
            Unreadable: None does, or there is no bracket.
        """
        depth = 0
        for i in range(place, len(self.words)):
            depth += (self.words[i] in OPENS) - (self.words[i] in CLOSES)
            if depth == 0:
                if i == place:
                    break
                return i
        raise Unreadable

    def until(self, *stops: str) -> int:
        """
        The place of the next of `stops` outside of brackets.

        Raises:
            Unreadable: A block or a bracket ends before.
        """
        i = self.at
        while i < len(self.words):
            if self.words[i] in stops:
                return i
            if self.words[i] in CLOSES or self.words[i] in ENDS:
                break
            i = self.close(i) + 1 if self.words[i] in OPENS else i + 1
        raise Unreadable

    def label(self) -> None:
        """Pass over `: name`, where it stands here."""
        if self.word() == ":":
            self.at += 2

    def expression(self, first: int, last: int, *, is_value: bool = False) -> None:
        """Note an expression; `is_value`: the whole right-hand side of an assignment."""
        if first <= last:
            span = Span(first, last, self.reset_depth > 0)
            self.out.expressions.append(span)
            if is_value:
                self.out.values.append(span)

    def indexes(self, first: int, stop: int) -> None:
        """Note the indexes on the left-hand side of an assignment."""
        i = first
        while i < stop:
            if self.words[i] == "[":
                self.expression(i + 1, self.close(i) - 1)
                i = self.close(i)
            i += 1
