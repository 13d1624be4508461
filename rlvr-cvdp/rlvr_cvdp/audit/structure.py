"""What stands where in a Verilog text: assignments, conditions, edges, expressions."""

from __future__ import annotations

from attrs import define, field, frozen

from rlvr_cvdp.audit.tokens import Token


@frozen
class Process:
    """An `always`, `initial`, function or task: its first and last token."""

    kind: str
    first: int
    last: int


@frozen
class Assignment:
    """`lvalue op value ;` of a process: places of its first token, operator and semicolon."""

    first: int
    op: int
    last: int
    process: int
    in_reset: bool


@frozen
class Condition:
    """The expression between the parentheses of `if`, `while`, `for` or `repeat`."""

    kind: str
    first: int
    last: int
    is_reset: bool = False


@frozen
class Span:
    """An expression, from its first to its last token."""

    first: int
    last: int
    in_reset: bool


@define
class Structure:
    """
    The code tokens of a text and what was found among them; all places count code tokens.

    Attributes:
        expressions: What may be changed token by token.
        values: Right-hand sides of assignments, each also one of `expressions`.
        ranges: Insides of the brackets that declare inner nets and variables.
        edges: Places of `posedge` and `negedge`.
        extra_edges: An edge with its `or` that a sensitivity list could do without.
    """

    text: str
    tokens: list[Token]
    processes: list[Process] = field(factory=list)
    assignments: list[Assignment] = field(factory=list)
    conditions: list[Condition] = field(factory=list)
    expressions: list[Span] = field(factory=list)
    values: list[Span] = field(factory=list)
    ranges: list[tuple[int, int]] = field(factory=list)
    edges: list[int] = field(factory=list)
    extra_edges: list[tuple[int, int]] = field(factory=list)

    def parts(self) -> tuple[list, ...]:
        """Everything that was found, to forget what a construct that ends badly has left."""
        return (
            *(self.processes, self.assignments, self.conditions, self.expressions),
            *(self.values, self.ranges, self.edges, self.extra_edges),
        )
