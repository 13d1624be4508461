"""Reading a whole text: modules, their items, and the processes among them.

Enough of the grammar to tell `q <= a` from `if (q <= a)`, a reset's branch from the rest, and code
from headers, parameters and assertions. What cannot be read is left out: nothing is found there.
"""

from __future__ import annotations

from rlvr_cvdp.audit.cursor import ENDS, Unreadable
from rlvr_cvdp.audit.statements import ASSERTS, DECLARES, Statements
from rlvr_cvdp.audit.structure import Process, Structure
from rlvr_cvdp.audit.tokens import tokenize

_SKIPPED = {
    "property": "endproperty",
    "sequence": "endsequence",
    "covergroup": "endgroup",
    "specify": "endspecify",
    "clocking": "endclocking",
    "class": "endclass",
    "table": "endtable",
}
_HEADS = frozenset(["module", "macromodule", "interface", "program", "package"])
_ALWAYS = frozenset(["always", "always_ff", "always_comb", "always_latch"])
_STARTS = _ALWAYS | _HEADS | {"assign", "initial", "function", "task", "endmodule"}


def read_structure(text: str) -> Structure:
    """The structure of a text; parts that cannot be read hold nothing."""
    structure = Structure(text, [token for token in tokenize(text) if token.is_code])
    _Items(structure).items()
    return structure


class _Items(Statements):
    """Reads items of modules one after the other."""

    def items(self) -> None:
        """All of them; one that cannot be read leaves nothing, and the next is looked for."""
        while self.at < len(self.words):
            before = self.at
            found = [len(part) for part in self.out.parts()]
            try:
                self.item()
            except Unreadable:
                self._forget(found)
                self.at = self._next_start(before + 1)
            self.at = max(self.at, before + 1)

    def item(self) -> None:
        """One item, or a word that only groups items."""
        word = self.word()
        if word in _HEADS:
            self.at = self.until(";") + 1
        elif word in _SKIPPED:
            self._pass(_SKIPPED[word])
        elif word in _ALWAYS:
            self._always()
        elif word == "initial":
            self._process(word, self.at + 1)
        elif word == "final":
            found = [len(part) for part in self.out.parts()]
            self._process(word, self.at + 1)
            self._forget(found)
        elif word in ("function", "task"):
            self._routine(word)
        elif word == "assign":
            self._assigns()
        elif word in ("if", "for", "case"):
            self.at = self.close(self.at + 1) + 1
        elif word in ASSERTS or (self.word(1) == ":" and self.word(2) in ASSERTS):
            self._pass(";")
        elif word in ("begin", "fork") or word in ENDS:
            self.at += 1
            self.label()
        elif word in ("else", "generate", "default", ":", ";"):
            self.at += 1
        elif word in DECLARES or self.is_declaration():
            self.declaration()
        elif self.word(1) == ":":
            self.at += 2
        else:
            self._instance()

    def _forget(self, found: list[int]) -> None:
        for part, size in zip(self.out.parts(), found, strict=True):
            del part[size:]
        self.process, self.reset_depth = -1, 0

    def _next_start(self, place: int) -> int:
        starts = (i for i in range(place, len(self.words)) if self.words[i] in _STARTS)
        return next(starts, len(self.words))

    def _pass(self, stop: str) -> None:
        while self.at < len(self.words) and self.word() != stop:
            self.at += 1
        self.at += 1

    def _assigns(self) -> None:
        self.at += 1
        if self.word() == "#":
            self.at += 1
            self.at = self.close(self.at) + 1 if self.word() == "(" else self.at + 1
        while True:
            first = self.at
            op = self.until("=")
            self.at = op + 1
            end = self.until(",", ";")
            self.expression(op + 1, end - 1, is_value=True)
            self.indexes(first, op)
            self.at = end + 1
            if self.words[end] == ";":
                return

    def _instance(self) -> None:
        """`name #(...) inner (.port(expression), ...);`: parameters and connections."""
        end = self.until(";")
        for i in range(self.at, end):
            if self.words[i] == "." and i + 2 < end and self.words[i + 2] == "(":
                self.expression(i + 3, self.close(i + 2) - 1)
        self.at = end + 1

    def _always(self) -> None:
        start, kind = self.at, self.word()
        edges: list[int] = []
        after = start + 1
        if self.word(1) == "@" and self.word(2) == "(":
            close = self.close(start + 2)
            edges = [k for k in range(start, close) if self.words[k] in ("posedge", "negedge")]
            after = close + 1
        elif self.word(1) == "@":
            after = start + 3
        self.out.edges += edges
        self.out.extra_edges += [(k - 1, k + 1) for k in edges[1:] if self.words[k - 1] != "("]
        asynchronous = {self.words[k + 1] for k in edges[1:]}
        self._process(kind, after, resets=asynchronous if edges else None)

    def _process(self, kind: str, start: int, *, resets: set[str] | None = None) -> None:
        first = self.at
        self.process = len(self.out.processes)
        self.out.processes.append(Process(kind, first, first))
        self.at = start
        self.statement(resets)
        self.out.processes[self.process] = Process(kind, first, self.at - 1)
        self.process = -1

    def _routine(self, kind: str) -> None:
        """A function or a task."""
        first = self.at
        self.at = self.until(";") + 1
        self.process = len(self.out.processes)
        self.out.processes.append(Process(kind, first, first))
        while self.word() != "end" + kind:
            self.statement()
        self.at += 1
        self.label()
        self.out.processes[self.process] = Process(kind, first, self.at - 1)
        self.process = -1
