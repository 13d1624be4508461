"""What a game was: its moves, how it ended, and where somebody answered what is no legal move."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import chess
from attrs import field, frozen


def _strings(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


def _ints(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(values)


@frozen(kw_only=True)
class Game:
    """
    A finished game.

    Attributes:
        moves: UCI, the opening's included.
        start_fen: Six fields of the position before them.
        result: "1-0", "0-1" or "1/2-1/2".
        reason: Why it ended: "checkmate", "illegal move", "ply cap", ... (`adjudication`).
        opening: Name of the opening.
        eco: Its code, "" where none.
        book: Plies that the opening gave; the movers played the others.
        illegal_at: Ply (0-based, place in `moves`) of the first answer that was no legal move,
            whatever the rule did about it; None where all were legal.
        illegal: Such answers of White and of Black; asked again, each counts.
        random: Plies that were drawn at random: injected blunders and the rule `random`.
        white: Who played White.
        black: Who played Black.
    """

    moves: tuple[str, ...] = field(converter=_strings)
    start_fen: str = chess.STARTING_FEN
    result: str
    reason: str
    opening: str = ""
    eco: str = ""
    book: int = 0
    illegal_at: int | None = None
    illegal: tuple[int, ...] = field(default=(0, 0), converter=_ints)
    random: tuple[int, ...] = field(default=(), converter=_ints)
    white: str = ""
    black: str = ""

    @property
    def plies(self) -> int:
        """Half-moves, the opening's included."""
        return len(self.moves)

    @property
    def legal_plies(self) -> int:
        """Half-moves of the movers before the first illegal answer; all of them without one."""
        return (self.plies if self.illegal_at is None else self.illegal_at) - self.book

    @property
    def final_fen(self) -> str:
        """Six fields of the last position."""
        board = chess.Board(self.start_fen)
        for uci in self.moves:
            board.push_uci(uci)
        return board.fen()

    def score(self, colour: chess.Color) -> float:
        """Points of a side: 1, 0.5 or 0."""
        white = {"1-0": 1.0, "0-1": 0.0}.get(self.result, 0.5)
        return white if colour == chess.WHITE else 1.0 - white

    def positions(self) -> Iterator[tuple[int, str, str]]:
        """Ply, FEN before it and the move, in order."""
        board = chess.Board(self.start_fen)
        for ply, uci in enumerate(self.moves):
            yield ply, board.fen(), uci
            board.push_uci(uci)
