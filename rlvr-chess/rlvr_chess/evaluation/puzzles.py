"""Puzzles: is the first move found, and the whole line? By rating.

As on lichess.org the opponent's replies are those of the line, and any move that mates is right
where the line's last move is due.
"""

from __future__ import annotations

from collections.abc import Sequence

import chess
from attrs import define, frozen

from rlvr.types import Figure
from rlvr_chess.evaluation.player import Player
from rlvr_chess.evaluation.statistics import rate
from rlvr_chess.records import Solution
from rlvr_chess.transition import mating_moves

BUCKET = 400
"""Width of a bucket of ratings."""


@frozen(kw_only=True)
class Attempt:
    """
    How far the line of a puzzle was found.

    Attributes:
        puzzle: It.
        is_first: Whether its first move was.
        is_whole: Whether all of it was.
        fen: Where it ended.
        expected: The move that was due there, "" after the last one.
        wrong: The legal move that was chosen instead, None: none.
    """

    puzzle: Solution
    is_first: bool
    is_whole: bool
    fen: str = ""
    expected: str = ""
    wrong: str | None = None


@define
class _Running:
    puzzle: Solution
    board: chess.Board
    place: int = 0  # of the next move in the line, ours
    is_over: bool = False
    wrong: str | None = None

    def take(self, move: str | None) -> None:
        """Play our move, and the reply if it was right and the line goes on."""
        line = self.puzzle.line
        is_last = self.place + 1 >= len(line)
        if move != line[self.place] and not (is_last and move in mating_moves(self.board.fen())):
            self.is_over, self.wrong = True, move
            return
        if is_last:
            self.is_over = True
        else:
            self.board.push_uci(line[self.place])
            self.board.push_uci(line[self.place + 1])
        self.place += 2
        self.is_over = self.is_over or self.place >= len(line)


async def attempts(player: Player, puzzles: Sequence[Solution]) -> list[Attempt]:
    """Every puzzle played to its end or to the first wrong move; one batch a move."""
    running = [_Running(puzzle, chess.Board(puzzle.fen)) for puzzle in puzzles]
    while going := [one for one in running if not one.is_over]:
        moves = await player.moves([one.board.fen() for one in going])
        for one, move in zip(going, moves, strict=True):
            one.take(move)
    return [
        Attempt(
            puzzle=one.puzzle,
            is_first=one.place > 0,
            is_whole=one.place >= len(one.puzzle.line),
            fen=one.board.fen(),
            expected="".join(one.puzzle.line[one.place : one.place + 1]),
            wrong=one.wrong,
        )
        for one in running
    ]


def figures(tried: Sequence[Attempt]) -> list[Figure]:
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
