"""
Keeps games and the positions taken from them apart.

Openings are drawn with quotas (`openings.choose_openings`), blunders are injected (`MixMover`),
the first moves may be drawn hotter, games that run together are parted, and positions are taken
from all phases of a game.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence

import chess
from attrs import field, frozen

from rlvr_chess.fen import four_fields
from rlvr_chess.selfplay.game import Game


def warm(temperature: float, *, first: float, plies: int) -> Callable[[int], float]:
    """Temperature by ply since the opening: `first` for so many plies, then `temperature`."""
    return lambda ply: first if ply < plies else temperature


class Crowd:
    """
    Counts the games that came through each position.

    Args:
        limit: Games that may; 0: all.
        retries: How often a mover is asked for another move before the crowd is suffered.
    """

    def __init__(self, limit: int, retries: int = 2) -> None:
        self._limit = limit
        self._retries = retries
        self._games: dict[str, set[int]] = {}

    def refuses(self, board: chess.Board, game: int, attempt: int) -> bool:
        """Whether the game should not come here, and its mover may be asked again."""
        if not self._limit or attempt >= self._retries:
            return False
        visitors = self._games.get(four_fields(board.fen()), set())
        return game not in visitors and len(visitors) >= self._limit

    def enter(self, board: chess.Board, game: int) -> None:
        """The game came here."""
        if self._limit:
            self._games.setdefault(four_fields(board.fen()), set()).add(game)


def _strings(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(values)


@frozen(kw_only=True)
class Found:
    """
    A position that a game came through.

    Attributes:
        fen: Six fields.
        ply: Half-moves since the initial position, or what the opening's FEN says.
        opening: Name of the opening.
        history: Moves before it, at most nine, the last one last.
        move: The move that was played in it; "" where the game ended, an illegal answer included.
    """

    fen: str
    ply: int
    opening: str
    history: tuple[str, ...] = field(default=(), converter=_strings)
    move: str = ""

    @property
    def key(self) -> str:
        """Twelve hexadecimal digits of the position: pieces, side, castling, en passant."""
        return hashlib.sha256(four_fields(self.fen).encode()).hexdigest()[:12]


def harvest(game: Game, count: int, *, seed: object) -> list[Found]:
    """
    Up to `count` positions of a game: one of each equal stretch of it, drawn at random.

    Where an answer was illegal, that position comes first: it is what the mover cannot do yet.
    Positions of the opening, those with a single legal move, and repeated ones are left out.
    """
    rng = random.Random(f"harvest/{seed}")
    places = _places(game)
    found: dict[str, Found] = {}
    if game.illegal_at is not None and game.illegal_at in places:
        found[places[game.illegal_at].key] = places[game.illegal_at]
    plies = sorted(places)
    for stretch in range(count):
        own = plies[stretch * len(plies) // count : (stretch + 1) * len(plies) // count]
        if own and len(found) < count:
            chosen = places[rng.choice(own)]
            found.setdefault(chosen.key, chosen)
    return list(found.values())


def _places(game: Game) -> dict[int, Found]:
    """What may be taken from a game, by place in its moves; also its end, where nobody moved."""
    board = chess.Board(game.start_fen)
    found = {}
    for place, uci in enumerate([*game.moves, ""]):
        if place >= game.book and not board.is_game_over() and board.legal_moves.count() > 1:
            found[place] = Found(
                fen=board.fen(),
                ply=board.ply(),
                opening=game.opening,
                history=game.moves[max(0, place - 9) : place],
                move=uci,
            )
        if uci:
            board.push_uci(uci)
    return found
