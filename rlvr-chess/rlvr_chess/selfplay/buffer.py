"""
Positions of games, and those that self-play keeps: new ones, not too old, not too many of a kind.

A buffer is plain data and changes by returning another one, so it goes to JSON with a checkpoint
and an interrupted run goes on exactly.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import attrs
import chess
from attrs import field, frozen

from rlvr import CheckpointError, as_tuple
from rlvr_chess.fen import four_fields
from rlvr_chess.selfplay.game import Game

VERSION = 1
STRATUM = 20
"""Plies of a stratum: positions of one phase of the game do not push out those of others."""
STRATA = 6
"""The last one is open: plies 100 and later."""
MEMORY = 8
"""Positions that are remembered as met, as a multiple of the capacity."""


@frozen(kw_only=True, slots=False)
class Found:
    """
    A position that a game came through.

    Attributes:
        fen: Six fields.
        ply: Half-moves since the initial position, or what the opening's FEN says.
        opening: Name of the opening.
        history: Moves before it, at most nine, the last one last.
        move: The move that was played in it; "" where the game ended, an illegal answer included.
        step: The step that found it.
    """

    fen: str
    ply: int
    opening: str
    history: tuple[str, ...] = field(default=(), converter=as_tuple)
    move: str = ""
    step: int = 0

    @cached_property
    def key(self) -> str:
        """Twelve hexadecimal digits of the position: pieces, side, castling, en passant."""
        return hashlib.sha256(four_fields(self.fen).encode()).hexdigest()[:12]

    @property
    def stratum(self) -> int:
        """Which phase of the game it is from."""
        return min(self.ply // STRATUM, STRATA - 1)


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
    """The positions of a game that may be taken, by place in its moves; the last one too."""
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


@frozen(kw_only=True)
class Limits:
    """How many positions a buffer holds, for how many steps, how many an opening (0: any)."""

    capacity: int
    max_age: int
    per_opening: int = 0


@frozen(kw_only=True)
class PositionBuffer:
    """
    Positions, oldest first, and the keys of those met before, which are never admitted again.

    `met` holds `MEMORY` times the capacity; beyond that the oldest are forgotten.
    """

    entries: tuple[Found, ...] = ()
    met: tuple[str, ...] = field(default=(), repr=False)

    def aged(self, step: int, limits: Limits) -> PositionBuffer:
        """Without the positions that are too old at a step (0-based)."""
        kept = tuple(e for e in self.entries if step - e.step < limits.max_age)
        return attrs.evolve(self, entries=kept)

    def with_found(self, found: Iterable[Found], step: int, limits: Limits) -> PositionBuffer:
        """
        With the positions that are new; where there are too many, the oldest of the fullest go.

        Those of an opening that is over its quota go first, then those of the fullest stratum.
        """
        entries, met = list(self.entries), dict.fromkeys(self.met)
        met |= dict.fromkeys(e.key for e in entries if e.key not in met)  # forgotten, but held
        for position in found:
            if position.key not in met:
                met[position.key] = None
                entries.append(attrs.evolve(position, step=step))
        openings = Counter(e.opening for e in entries)
        strata = Counter(e.stratum for e in entries)
        while crowded := _too_many(entries, openings, strata, limits):
            openings[crowded.opening] -= 1
            strata[crowded.stratum] -= 1
            entries.remove(crowded)
        return PositionBuffer(entries=tuple(entries), met=tuple(met)[-MEMORY * limits.capacity :])

    def to_json(self) -> dict[str, Any]:
        """The JSON value that a checkpoint keeps."""
        positions = [attrs.asdict(e) for e in self.entries]
        return {"version": VERSION, "met": list(self.met), "positions": positions}

    @classmethod
    def from_json(cls, memory: Mapping[str, Any]) -> PositionBuffer:
        """
        The buffer that `to_json` wrote; an empty one of {}.

        Raises:
            CheckpointError: It was written by another version of this plugin.
        """
        if not memory:
            return cls()
        if memory.get("version") != VERSION:
            raise CheckpointError(
                "the positions that self-play found were to be read from a checkpoint.",
                f"found: version {memory.get('version')!r}, this is version {VERSION}",
                "go on with the rlvr-chess that began the run, or begin another run",
            )
        entries = [Found(**position) for position in memory["positions"]]
        return cls(entries=tuple(entries), met=tuple(memory["met"]))


def _too_many(
    entries: list[Found], openings: Counter[str], strata: Counter[int], limits: Limits
) -> Found | None:
    """The position that leaves first, None where all may stay."""
    if limits.per_opening and max(openings.values(), default=0) > limits.per_opening:
        return next(e for e in entries if openings[e.opening] > limits.per_opening)
    if len(entries) <= limits.capacity:
        return None
    fullest = max(strata.values())
    return next(e for e in entries if strata[e.stratum] == fullest)
