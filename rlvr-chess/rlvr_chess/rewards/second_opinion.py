"""
A second judge of chess answers: another reader, plain python-chess, a deeper search.

Nothing here uses `grammar`, `transition` or `fen.board_of`, so that no fault of theirs is repeated.
It only judges whether an answer is right: partial points are the first judge's.
"""

from __future__ import annotations

import chess

from rlvr import Reward
from rlvr_chess.questions.records import EnvironmentStep, Solution
from rlvr_chess.values import BAND, ActionValues

TOLERANCE = 0.08
"""
Win probability that a move may give away by the deeper search.

Of 195 moves that the shipped table calls as good as the best one (80 positions), a search of a
million nodes finds 45 that give away more than `BAND`, 4 more than 0.05 and 1 more than this.
"""


def opinion(is_right: bool, why: str) -> Reward:
    """A verdict of right or wrong."""
    return Reward(value=float(is_right), score01=float(is_right), evidence={"why": why})


def on_environment(step: EnvironmentStep, text: str, *, is_padded: bool) -> Reward:
    """Whether the answer is the state after the move, by python-chess's own board."""
    wanted = environment_truth(step.fen, step.uci)
    said = tuple((text.rstrip(" ") if is_padded else text).split("+"))
    if is_padded and len(said) == 4 and said[1] in ("1", "-1"):
        said = (said[0], f"{said[1]}.0", *said[2:])
    return opinion(said == wanted, "" if said == wanted else f"the rules say {'+'.join(wanted)}")


def environment_truth(fen: str, uci: str) -> tuple[str, str, str, str]:
    """FEN, reward, terminated and truncated after a move, each rule as python-chess states it."""
    board = chess.Board(fen)
    if uci not in {move.uci() for move in board.legal_moves}:
        return board.fen(), "-1.0", "0", "1"
    board.push_uci(uci)
    if board.is_checkmate():
        return board.fen(), "1.0", "1", "0"
    is_drawn = board.is_stalemate() or board.is_insufficient_material()
    if is_drawn or board.halfmove_clock >= 150:
        return board.fen(), "0.5", "1", "0"
    return board.fen(), "0.001", "0", "0"


def chosen_move(fen: str, text: str, *, is_padded: bool) -> str | None:
    """The legal move after `B:` of a line with as many candidates as evaluations; else None."""
    legal = {move.uci() for move in chess.Board(fen).legal_moves}
    line = " " + " ".join(text.split()) if is_padded else text
    moves, _, rest = line.partition(" E: ")
    evals, _, best = rest.partition(" B: ")
    count = min(5, len(legal))
    is_line = line == f" {' '.join(moves.split())} E: {' '.join(evals.split())} B: {best}"
    is_full = len(moves.split()) == len(evals.split()) == count
    return best if is_line and is_full and best in legal else None


def on_solution(record: Solution, best: str | None) -> Reward:
    """Whether the chosen move solves the puzzle, or has full points in the suite."""
    if best is None:
        return opinion(False, "no line with a legal choice")
    board = chess.Board(record.fen)
    board.push_uci(best)
    is_right = record.points.get(best, 0.0) == 1.0 or (record.any_mate and board.is_checkmate())
    if record.avoid:
        is_right = best not in record.avoid and (is_right or not record.points)
    return opinion(is_right, "" if is_right else f"{best} is no solution")


def on_position(best: str | None, values: ActionValues, *, is_deeper: bool) -> Reward | None:
    """Whether the choice holds in the deeper search; without one, by the table's own scores."""
    if best is None:
        return opinion(False, "no line with a legal choice")
    if best not in values.table:  # legal, and the table does not know it
        return None
    regret = values.regret(best)
    is_right = regret <= (TOLERANCE if is_deeper else BAND)
    by = "a deeper search" if is_deeper else "the table"
    return opinion(is_right, "" if is_right else f"{best} gives away {regret:.3f} by {by}")
