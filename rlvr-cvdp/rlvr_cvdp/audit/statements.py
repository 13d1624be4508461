"""Reading processes: statements, their conditions, what belongs to a reset."""

from __future__ import annotations

import re

from rlvr_cvdp.audit.cursor import ENDS, OPENS, Cursor, Unreadable, words
from rlvr_cvdp.audit.structure import Assignment, Condition

DECLARES = words(
    "input output inout wire tri wand wor supply0 supply1 reg logic bit byte int integer shortint "
    "longint time real realtime string genvar event signed unsigned var automatic static const "
    "typedef enum struct union packed localparam parameter specparam import export defparam "
    "virtual modport uwire tri0 tri1"
)
ASSERTS = words("assert assume cover restrict expect")
ASSIGNS = words("= <= += -= *= /= %= &= |= ^= <<= >>= <<<= >>>=")
_WIRES = words("wire tri wand wor uwire logic bit reg integer int byte")
_RESET = re.compile(r"rst|reset|clr|clear", re.IGNORECASE)


class Statements(Cursor):
    """Reads a process from its first statement to its end."""

    process: int = -1

    def statement(self, resets: set[str] | None = None) -> None:
        """
        One statement.

        Args:
            resets: Asynchronous signals of a clocked process, whose first `if` may be its reset;
                None everywhere else.

        Raises:
            Unreadable: It is none.
        """
        while self.word() in ("unique", "unique0", "priority"):
            self.at += 1
        word = self.word()
        if word in ("begin", "fork"):
            self._block(resets)
        elif word == "if":
            self._if(resets)
        elif word in ("case", "casez", "casex"):
            self._case()
        elif word in ("for", "while", "repeat", "foreach"):
            self._loop(word)
        elif word == "forever":
            self.at += 1
            self.statement()
        elif word in ("@", "#", "wait"):
            self.at += 1
            self.at = self.close(self.at) + 1 if self.word() == "(" else self.at + 1
            self.statement()
        elif word in ASSERTS or word in ("disable", "->", "->>", "do", "randcase"):
            self.at = self.until(";") + 1
        elif word == "return":
            end = self.until(";")
            self.expression(self.at + 1, end - 1)
            self.at = end + 1
        elif word in DECLARES or self.is_declaration():
            self.declaration()
        elif word in ("", "else", ":") or word in ENDS:
            raise Unreadable
        else:
            self._assign_or_call()

    def _block(self, resets: set[str] | None) -> None:
        self.at += 1
        self.label()
        while self.word() not in ("end", "join", "join_any", "join_none"):
            self.statement(resets)
            resets = None
        self.at += 1
        self.label()

    def _if(self, resets: set[str] | None) -> None:
        close = self.close(self.at + 1)
        asked = self.words[self.at + 2 : close]
        is_reset = resets is not None and any(w in resets or _RESET.search(w) for w in asked)
        self.out.conditions.append(Condition("if", self.at + 2, close - 1, is_reset))
        self.expression(self.at + 2, close - 1)
        self.at = close + 1
        self.reset_depth += is_reset
        self.statement()
        self.reset_depth -= is_reset
        if self.word() == "else":
            self.at += 1
            self.statement()

    def _case(self) -> None:
        close = self.close(self.at + 1)
        self.expression(self.at + 2, close - 1)
        self.at = close + 1
        while self.word() != "endcase":
            if self.word() == "inside":
                self.at += 1
            elif self.word() == "default":
                self.at += 2 if self.word(1) == ":" else 1
                self.statement()
            else:
                stop = self.until(":")
                self.expression(self.at, stop - 1)
                self.at = stop + 1
                self.statement()
        self.at += 1

    def _loop(self, word: str) -> None:
        """Start and bound of a loop may be changed; its step may not: it would never end."""
        first, close = self.at + 2, self.close(self.at + 1)
        if word == "for":
            self.at = first
            bound = self.until(";") + 1
            self.at = bound
            self.expression(first, bound - 2)
            self.expression(bound, self.until(";") - 1)
        elif word == "repeat":
            self.expression(first, close - 1)
        self.at = close + 1
        self.statement()

    def _assign_or_call(self) -> None:
        first = self.at
        end = self.until(";")
        i = first
        while i < end and self.words[i] not in ASSIGNS:
            i = self.close(i) + 1 if self.words[i] in OPENS else i + 1
        if i < end:
            in_reset = self.reset_depth > 0
            self.out.assignments.append(Assignment(first, i, end, self.process, in_reset))
            value = i + 1
            if self.words[value] == "#":  # a delay inside of the assignment
                value = self.close(value + 1) + 1 if self.words[value + 1] == "(" else value + 2
            self.expression(value, end - 1, is_value=True)
            self.indexes(first, i)
        self.at = end + 1

    def is_declaration(self) -> bool:
        """`state_t state, next;` or `pkg::state_t s;`: a user's type, then a name."""
        place = 2 if self.word(1) == "::" else 0
        if self.at + place + 2 >= len(self.words):
            return False
        kinds = [self.out.tokens[self.at + place + i].kind for i in (0, 1)]
        return kinds == ["word", "word"] and self.word(place + 2) in (";", ",", "=", "[")

    def declaration(self) -> None:
        """Note the ranges of inner nets, and what a net or a local parameter is given at once."""
        first, kind = self.at, self.word()
        end = self.until(";")
        is_constant = kind == "localparam"
        if kind in _WIRES or is_constant:
            i = first
            while i < end:
                if self.words[i] == "[":
                    if self.words[i - 1] != "]" and not is_constant:
                        self.out.ranges.append((i + 1, self.close(i) - 1))
                    i = self.close(i)
                elif self.words[i] == "=":
                    self.at = i + 1
                    stop = self.until(",", ";")
                    self.expression(i + 1, stop - 1)
                    i = stop
                i += 1
        self.at = end + 1
