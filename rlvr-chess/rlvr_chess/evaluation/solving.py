"""Puzzles by rating (the first move, the whole line), and test suites of EPD.

As on lichess.org the opponent's replies are those of a puzzle's line, and any move that mates is
right where the line's last move is due. STS counts the points of its moves.
"""

from __future__ import annotations

from collections.abc import Sequence

import chess
from attrs import define, frozen

from rlvr import Metric
from rlvr_chess.asking import Player
from rlvr_chess.evaluation.statistics import mean, rate
from rlvr_chess.questions.records import Solution
from rlvr_chess.questions.transition import mating_moves
from rlvr_chess.rewards.solution import points

BUCKET = 400
"""Width of a bucket of ratings."""
ORDER = ("wac", "ecm", "bk", "sts")
"""Suites that the literature quotes come first."""


@define(kw_only=True)
class Attempt:
    """
    How far the line of a puzzle was found.

    Attributes:
        puzzle: It.
        board: Where the line stands, or ended.
        place: Of the next move in the line, ours.
        is_over: Its end came, or a wrong move.
        wrong: The legal move that was chosen instead of the right one, None: none.
    """

    puzzle: Solution
    board: chess.Board
    place: int = 0
    is_over: bool = False
    wrong: str | None = None

    @property
    def is_first(self) -> bool:
        """Whether the first move of the line was found."""
        return self.place > 0

    @property
    def is_whole(self) -> bool:
        """Whether all of the line was found."""
        return self.place >= len(self.puzzle.line)

    @property
    def expected(self) -> str:
        """The move that is due, "" after the last one."""
        return "".join(self.puzzle.line[self.place : self.place + 1])

    def take(self, move: str | None) -> None:
        """Play our move, and the reply if it was right and the line goes on."""
        line = self.puzzle.line
        is_last = self.place + 1 >= len(line)
        if move != self.expected and not (is_last and move in mating_moves(self.board.fen())):
            self.is_over, self.wrong = True, move
            return
        if not is_last:
            self.board.push_uci(line[self.place])
            self.board.push_uci(line[self.place + 1])
        self.place += 2
        self.is_over = self.is_whole


async def attempts(player: Player, puzzles: Sequence[Solution]) -> list[Attempt]:
    """Every puzzle played to its end or to the first wrong move; one batch a move."""
    tried = [Attempt(puzzle=puzzle, board=chess.Board(puzzle.fen)) for puzzle in puzzles]
    while going := [one for one in tried if not one.is_over]:
        moves = await player.moves([one.board.fen() for one in going])
        for one, move in zip(going, moves, strict=True):
            one.take(move)
    return tried


def puzzle_figures(tried: Sequence[Attempt]) -> list[Metric]:
    """Whole lines and first moves: all together, then by rating."""
    found = []
    for name, hits in (
        ("puzzles/line", [(one.puzzle.rating, one.is_whole) for one in tried]),
        ("puzzles/first", [(one.puzzle.rating, one.is_first) for one in tried]),
    ):
        found.append(rate(name, [hit for _, hit in hits]))
        for low in sorted({rating // BUCKET * BUCKET for rating, _ in hits if rating}):
            inside = [hit for rating, hit in hits if low <= rating < low + BUCKET]
            found.append(rate(f"{name}/{low}-{low + BUCKET - 1}", inside))
    return found


@frozen(kw_only=True)
class Tried:
    """A position of a suite and the legal move that was chosen, None: none."""

    position: Solution
    move: str | None

    @property
    def points(self) -> float:
        """0..1; an `am` position gives 1 to any legal move that is not to be avoided."""
        return 0.0 if self.move is None else points(self.position, self.move)


def suite_figures(tried: Sequence[Tried]) -> list[Metric]:
    """Of each suite the share solved; where moves have points between, their mean."""
    names = {one.position.suite for one in tried}
    found = []
    for name in [*(n for n in ORDER if n in names), *sorted(names - set(ORDER))]:
        of_suite = [one for one in tried if one.position.suite == name]
        earned = [one.points for one in of_suite]
        solved = [value == 1.0 for value in earned]
        label = f"suites/{name or 'other'}"
        found.append(rate(f"{label}/solved", solved, f"{sum(solved)} of {len(solved)}"))
        if any(0.0 < value < 1.0 for one in of_suite for value in one.position.points.values()):
            note = f"{sum(earned):.1f} of {len(earned)}"
            found.append(mean(f"{label}/points", earned, note))
    return found
