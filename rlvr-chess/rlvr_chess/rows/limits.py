"""What no answer can write, by the grammar: such a row has no right answer and is refused."""

from __future__ import annotations

from rlvr_chess.grammar import parse_environment, parse_policy, policy_text
from rlvr_chess.rows.row import RowError
from rlvr_chess.values import ActionValues

_SHOWN = 20


def check_clock(fen: str, plies: int = 1) -> None:
    """
    The position behind so many legal moves can be written.

    Raises:
        RowError: Its move number has too many digits.
    """
    *fields, clock = fen.split(" ")
    number = int(clock) + (plies + (fields[1] == "b")) // 2
    if parse_environment(f"{' '.join(fields)} {number}+0.001+0+0") is None:
        raise RowError(
            f"its move number is {clock}, so that a position behind it has {number}: more digits "
            "than an answer may write; give it a smaller one"
        )


def check_values(values: ActionValues) -> None:
    """
    The evaluation of every move can be written.

    Raises:
        RowError: One has too many digits.
    """
    by_size = sorted(values.moves, key=lambda move: abs(move[2]))
    largest = {kind: (uci, value) for uci, kind, value in by_size}
    for kind, (uci, value) in largest.items():
        if parse_policy(policy_text([uci], [values.score_text(uci)], uci), 1) is None:
            shown = str(value) if len(str(value)) <= _SHOWN else f"{str(value)[:_SHOWN]}..."
            raise RowError(f'"{kind}" {shown} of {uci} has more digits than an answer may write')
