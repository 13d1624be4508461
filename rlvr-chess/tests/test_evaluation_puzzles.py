"""Puzzles and suites: what counts as solved."""

from __future__ import annotations

import asyncio

import chess
import pytest

from rlvr.testing.fakes import ScriptedPolicy
from rlvr.testing.tools import shared_data
from rlvr_chess.asking import Player
from rlvr_chess.evaluation import solving
from rlvr_chess.evaluation.solving import Tried
from rlvr_chess.questions.grammar import policy_text
from rlvr_chess.questions.records import Solution
from rlvr_chess.questions.transition import transition
from rlvr_chess.rows import Row, read_rows

# two rooks mate the king on the edge; in the second position on b8 and on e8
LADDER = "7k/8/8/8/8/8/R7/1R4K1 w - - 0 1"
TWO_MATES = "7k/R7/8/8/8/8/8/1R2R1K1 w - - 0 1"


def player(moves: dict[str, str]) -> Player:
    """Chooses the move for each placement; k candidates are filled up with it."""

    def script(prompt: str, _seed: int) -> str:
        fen = prompt.removeprefix("P: ").removesuffix(" M:")
        count = min(5, chess.Board(fen).legal_moves.count())
        best = moves.get(fen.split()[0], "a1a1")
        return policy_text([best] * count, ["0.00"] * count, best)

    return Player(ScriptedPolicy(script))


def after(fen: str, *moves: str) -> str:
    for uci in moves:
        fen = transition(fen, uci).fen
    return fen


def test_a_line_is_solved_move_by_move() -> None:
    """The replies are the line's; the first wrong move ends it, and where is kept."""
    puzzle = Solution(fen=LADDER, line=("a2a7", "h8g8", "b1b8"), rating=700, suite="puzzle")
    second = after(LADDER, "a2a7", "h8g8")
    right = {LADDER.split()[0]: "a2a7", second.split()[0]: "b1b8"}
    (solved,) = asyncio.run(solving.attempts(player(right), [puzzle]))
    assert (solved.is_first, solved.is_whole, solved.wrong) == (True, True, None)
    half = right | {second.split()[0]: "b1b7"}
    (begun,) = asyncio.run(solving.attempts(player(half), [puzzle]))
    assert (begun.is_first, begun.is_whole) == (True, False)
    assert (begun.board.fen(), begun.expected, begun.wrong) == (second, "b1b8", "b1b7")
    (none,) = asyncio.run(solving.attempts(player({}), [puzzle]))
    assert (none.is_first, none.is_whole, none.wrong) == (False, False, None)


def test_any_mate_is_right_at_the_end_only() -> None:
    """Another mating move than the line's solves its last move, not an earlier one."""
    last = Solution(fen=TWO_MATES, line=("b1b8",), rating=900, suite="puzzle")
    other = player({TWO_MATES.split()[0]: "e1e8"})
    assert asyncio.run(solving.attempts(other, [last]))[0].is_whole
    longer = Solution(fen=TWO_MATES, line=("b1b7", "h8g8", "e1e8"), rating=900, suite="puzzle")
    assert not asyncio.run(solving.attempts(other, [longer]))[0].is_first


def test_figures_are_by_buckets_of_400() -> None:
    """799 and 800 are in different buckets; a puzzle without a rating is in none."""
    tried = [
        solving.Attempt(
            puzzle=Solution(fen=LADDER, line=("a2a7",) * (1 if hit else 3), rating=rating),
            board=chess.Board(LADDER),
            place=2,
        )
        for rating, hit in ((799, True), (800, False), (1199, True), (0, True))
    ]
    found = {figure.name: figure for figure in solving.puzzle_figures(tried)}
    assert found["puzzles/line"].value == 0.75
    assert (found["puzzles/line/400-799"].value, found["puzzles/line/400-799"].n) == (1.0, 1)
    assert (found["puzzles/line/800-1199"].value, found["puzzles/line/800-1199"].n) == (0.5, 2)
    assert "puzzles/line/0-399" not in found
    assert found["puzzles/first"].value == 1.0


@pytest.mark.thorough
def test_who_knows_the_lines_solves_every_delivered_puzzle() -> None:
    """All 1,393 puzzles are solved by their own lines, and none by a player without a move."""
    rows = read_rows(shared_data("chess/puzzles_lichess.csv"))
    known = [row.payload for row in rows if isinstance(row, Row)]
    lines = [puzzle for puzzle in known if isinstance(puzzle, Solution)]
    assert len(lines) == 1393
    moves = {}
    for puzzle in lines:
        for place in range(0, len(puzzle.line), 2):
            moves[after(puzzle.fen, *puzzle.line[:place]).split()[0]] = puzzle.line[place]
    tried = asyncio.run(solving.attempts(player(moves), lines))
    assert all(one.is_first and one.is_whole for one in tried)
    assert not any(one.is_first for one in asyncio.run(solving.attempts(player({}), lines)))


def test_suites_are_solved_by_the_best_move_and_scored_by_points() -> None:
    """STS gives parts of a point; `am` positions any legal move that is not to be avoided."""
    sts = Solution(fen=LADDER, points={"a2a7": 1.0, "b1b7": 0.46}, suite="sts")
    wac = Solution(fen=LADDER, points={"a2a7": 1.0}, suite="wac")
    avoid = Solution(fen=LADDER, avoid=("a2a7",), suite="eet")
    tried = [
        *(Tried(position=sts, move=move) for move in ("a2a7", "b1b7", "g1g2", None)),
        *(Tried(position=wac, move=move) for move in ("a2a7", "b1b7")),
        *(Tried(position=avoid, move=move) for move in ("a2a7", "b1b7", None)),
    ]
    found = {figure.name: figure for figure in solving.suite_figures(tried)}
    assert found["suites/sts/points"].value == pytest.approx(1.46 / 4)
    assert found["suites/sts/points"].note == "1.5 of 4"
    assert found["suites/sts/solved"].value == 0.25
    assert (found["suites/wac/solved"].value, found["suites/wac/solved"].n) == (0.5, 2)
    assert "suites/wac/points" not in found
    assert found["suites/eet/solved"].value == pytest.approx(1 / 3)
    assert next(iter(found)) == "suites/wac/solved", "the suites that are quoted come first"
