"""Payloads of problems, which the verifier reads: one class a kind of question."""

from __future__ import annotations

from typing import TypeAlias

from attrs import field, frozen

from rlvr_chess.values import ActionValues


@frozen(kw_only=True)
class PolicyPosition:
    """
    Choose a move and say what it is worth.

    Attributes:
        fen: Six fields as python-chess writes them; not over, legal moves exist.
        values: Value of every legal move; None: the table store is asked when it is needed.
        source: Where the row comes from, for labels: "game", "opening".
    """

    fen: str
    values: ActionValues | None = field(default=None, repr=False)
    source: str = ""


@frozen(kw_only=True)
class EnvironmentStep:
    """
    Say what a move does. The truth is computed by the rules (`transition.transition`).

    Attributes:
        fen: Six fields before the move.
        uci: The move as asked, perhaps illegal or malformed.
        history: Up to ten last moves, the current one last; may be empty.
        category: One of the 29 kinds of the golden file, "" where unknown.
    """

    fen: str
    uci: str
    history: tuple[str, ...] = ()
    category: str = ""


@frozen(kw_only=True)
class Solution:
    """
    Find the move of a test suite or a puzzle: the answer is a policy line, its `B` is judged.

    Attributes:
        fen: Six fields before the move (for a puzzle after the opponent's set-up move).
        points: Points of moves in UCI, 0..1; a move that is not in it has none.
        avoid: Moves that are wrong (EPD's `am`): any other legal move then has 1 point, where
            `points` is empty.
        any_mate: Any move that mates has 1 point (the last move of a puzzle).
        line: The whole line of a puzzle from `fen`: our move, the reply, ...; empty for suites.
        rating: Of a puzzle; 0 where unknown.
        suite: "wac", "sts", "puzzle": name of the file's family.
    """

    fen: str
    points: dict[str, float] = field(factory=dict)
    avoid: tuple[str, ...] = ()
    any_mate: bool = False
    line: tuple[str, ...] = ()
    rating: int = 0
    suite: str = ""


Payload: TypeAlias = PolicyPosition | EnvironmentStep | Solution
