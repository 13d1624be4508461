"""
Plays many games at once: each round, all games in which a mover is to move are one batch.

Everything random comes from the seed, the game's place in the list and the ply, so a game is the
same whatever is played beside it (unless a `Crowd` parts them).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

import chess
from attrs import define, field, frozen

from rlvr import seed_of
from rlvr_chess.fen import four_fields
from rlvr_chess.questions.transition import legal_move
from rlvr_chess.selfplay.game import (
    Ending,
    Game,
    Judge,
    Rules,
    ended_by_resignation,
    ended_by_rules,
    ended_by_value,
    for_white,
    won_by,
)
from rlvr_chess.selfplay.movers import Move, Mover, Turn, random_move
from rlvr_chess.selfplay.openings import START, Opening


@frozen(kw_only=True)
class Pairing:
    """A game to play."""

    white: Mover
    black: Mover
    opening: Opening = START


@define
class Crowd:
    """
    Counts the games that came through each position: `limit` may (0: all).

    A mover is asked for another move `retries` times; then the position is accepted.
    """

    limit: int
    retries: int = 2
    _games: defaultdict[str, set[int]] = field(factory=lambda: defaultdict(set), init=False)

    def admits(self, board: chess.Board, game: int, attempt: int) -> bool:
        """Count the game here; False: it should not come, and its mover may be asked again."""
        if not self.limit:
            return True
        visitors = self._games[four_fields(board.fen())]
        if game not in visitors and len(visitors) >= self.limit and attempt < self.retries:
            return False
        visitors.add(game)
        return True


@define
class _Table:
    """A game under way."""

    number: int
    pairing: Pairing
    board: chess.Board
    seed: int
    attempt: int = 0
    parted: Move | None = None
    illegal_at: int | None = None
    illegal: list[int] = field(factory=lambda: [0, 0])
    random: list[int] = field(factory=list)
    own: tuple[list[float | None], list[float | None]] = field(factory=lambda: ([], []))
    judged: list[float] = field(factory=list)
    ending: Ending | None = None

    @property
    def mover(self) -> Mover:
        return self.pairing.white if self.board.turn == chess.WHITE else self.pairing.black

    @property
    def played(self) -> int:
        return len(self.board.move_stack) - len(self.pairing.opening.moves)

    def turn(self) -> Turn:
        seed = seed_of(self.seed, self.number, self.played)
        return Turn(board=self.board, seed=seed, ply=self.played, attempt=self.attempt)

    def take(self, said: Move, rules: Rules, crowd: Crowd) -> bool:
        """Play what was said, or deal with it; True where a move was played."""
        move = legal_move(self.board, said.uci or "")
        if move is None and self.parted is not None:  # only a crowd asked for another move
            said = self.parted
            move = legal_move(self.board, said.uci or "")
        if move is None:
            return self._refuse(rules)
        side = self.board.turn
        self.board.push(move)
        if not crowd.admits(self.board, self.number, self.attempt):
            self.board.pop()
            self.attempt += 1
            self.parted = said
            return False
        self._played(is_random=said.is_random)
        self.own[side].append(said.win_probability)
        self.ending = ended_by_rules(self.board, self.played, rules) or ended_by_resignation(
            side, self.own[side], rules
        )
        return True

    def game(self) -> Game:
        assert self.ending is not None, "a game is asked for when it has ended"
        opening = self.pairing.opening
        return Game(
            moves=tuple(move.uci() for move in self.board.move_stack),
            start_fen=opening.start_fen,
            result=self.ending.result,
            reason=self.ending.reason,
            opening=opening.name,
            eco=opening.eco,
            book=len(opening.moves),
            illegal_at=self.illegal_at,
            illegal=(self.illegal[0], self.illegal[1]),
            random=tuple(self.random),
            white=self.pairing.white.name,
            black=self.pairing.black.name,
        )

    def _refuse(self, rules: Rules) -> bool:
        side = self.board.turn
        self.illegal[0 if side == chess.WHITE else 1] += 1
        if self.illegal_at is None:
            self.illegal_at = len(self.board.move_stack)
        if rules.illegal == "random":
            self.board.push_uci(random_move(self.board, self.turn().draw))
            self._played(is_random=True)
            self.own[side].append(None)
            self.ending = ended_by_rules(self.board, self.played, rules)
            return True
        if rules.illegal == "resample" and self.attempt < rules.retries:
            self.attempt += 1
        else:
            self.ending = won_by(not side, "illegal move")
        return False

    def _played(self, *, is_random: bool) -> None:
        self.attempt, self.parted = 0, None
        if is_random:
            self.random.append(len(self.board.move_stack) - 1)


async def play(
    pairings: Sequence[Pairing],
    *,
    rules: Rules | None = None,
    seed: int = 0,
    judge: Judge | None = None,
    crowd: Crowd | None = None,
    on_end: Callable[[Game], None] | None = None,
) -> list[Game]:
    """
    Play all games to their end; one game a pairing, in order.

    Args:
        pairings: Both movers and the opening of each game.
        rules: When a game ends and what an illegal answer costs.
        seed: Of everything random.
        judge: Values for `rules.value_limit`; only asked where that is set.
        crowd: Parts games that run together.
        on_end: Called with each game as it ends.
    """
    rules, crowd = rules or Rules(), crowd or Crowd(0)
    tables = [
        _Table(number=number, pairing=pairing, board=pairing.opening.board(), seed=seed)
        for number, pairing in enumerate(pairings)
    ]
    running = tables
    while running:
        moved = [t for t, said in await _ask(running) if t.take(said, rules, crowd)]
        if judge is not None and rules.value_limit:
            open_tables = [t for t in moved if t.ending is None]
            found = await asyncio.gather(*(judge(t.board.fen()) for t in open_tables))
            for table, values in zip(open_tables, found, strict=True):
                if values is not None:
                    table.judged.append(for_white(values, table.board.turn))
                    table.ending = ended_by_value(table.judged, rules)
        if on_end is not None:
            for table in running:
                if table.ending is not None:
                    on_end(table.game())
        running = [table for table in running if table.ending is None]
    return [table.game() for table in tables]


async def _ask(tables: Sequence[_Table]) -> list[tuple[_Table, Move]]:
    """The answer of the mover of each table, in the order of the tables."""
    by_mover: dict[int, list[_Table]] = {}
    for table in tables:
        by_mover.setdefault(id(table.mover), []).append(table)
    said: dict[int, Move] = {}

    async def ask(group: list[_Table]) -> None:
        moves = await group[0].mover.moves([table.turn() for table in group])
        said.update((table.number, move) for table, move in zip(group, moves, strict=True))

    await asyncio.gather(*map(ask, by_mover.values()))
    return [(table, said[table.number]) for table in tables]
