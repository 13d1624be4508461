"""
Self-play while training: positions of the policy's own games become further problems.

Before each step it plays games. An answer that is no legal move is recorded, its position is kept,
and a random legal move is played in its place: a weak policy would else never leave the opening.
Values of the positions are asked of the table store when a reward needs them, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from rlvr import Policy, SamplingParams, seed_of
from rlvr_chess.config import ChessConfig
from rlvr_chess.fen import read_board
from rlvr_chess.questions.records import EnvironmentStep, PolicyPosition
from rlvr_chess.rows.row import Row
from rlvr_chess.selfplay.arena import Crowd, Pairing, play
from rlvr_chess.selfplay.buffer import Limits, PositionBuffer, harvest
from rlvr_chess.selfplay.game import Rules
from rlvr_chess.selfplay.movers import MixMover, Mover, PolicyMover, random_move
from rlvr_chess.selfplay.openings import book, choose_openings

PER_GAME = 4
"""Positions taken from a game."""
OPENING_SHARE = 8
"""At most one in so many positions of the buffer is from one opening."""


class SelfPlay:
    """
    Further problems for a chess task (`ChessTask.discover`), as many as `chess.selfplay_*` say.

    Games are sampled as the run is, at the temperature `chess.selfplay_temperature`. `is_allowed`
    tells of a FEN whether it may be trained on: it is neither of split "test" nor a fixed problem.
    """

    def __init__(
        self, config: ChessConfig, params: SamplingParams, is_allowed: Callable[[str], bool]
    ) -> None:
        self._config = config
        self._params = attrs.evolve(params, temperature=config.selfplay_temperature, group_size=1)
        self._is_allowed = is_allowed

    @property
    def limits(self) -> Limits:
        """Of the buffer."""
        keep, age = self._config.selfplay_keep, self._config.selfplay_age
        return Limits(capacity=keep, max_age=age, per_opening=max(1, keep // OPENING_SHARE))

    async def discover(
        self, policy: Policy, memory: Mapping[str, Any], *, seed: int, step: int
    ) -> Mapping[str, Any]:
        """The memory after the games of a step; as it was where self-play is off."""
        config = self._config
        if not config.selfplay_games:
            return memory
        mover: Mover = PolicyMover(policy, self._params, config.wording)
        if config.selfplay_blunders:
            mover = MixMover(mover, 1.0 - config.selfplay_blunders)
        openings = choose_openings(book(), config.selfplay_games, seed=seed)
        games = await play(
            [Pairing(white=mover, black=mover, opening=opening) for opening in openings],
            rules=Rules(max_plies=config.selfplay_plies, illegal="random"),
            seed=seed,
            crowd=Crowd(1),
        )
        found = [
            position
            for number, game in enumerate(games)
            for position in harvest(game, PER_GAME, seed=f"{seed}/{number}")
            if self._is_allowed(position.fen)
        ]
        buffer = PositionBuffer.from_json(memory).aged(step, self.limits)
        return buffer.with_found(found, step, self.limits).to_json()

    def discovered(self, memory: Mapping[str, Any]) -> list[Row]:
        """
        The problems that the memory holds, all of split "train", ids `selfplay/...`.

        A position is asked for a move, and for what the move does that was played in it.
        """
        rows = []
        shown = self._config.history
        for found in PositionBuffer.from_json(memory).entries:
            name = f"selfplay/{found.key}"
            if self._config.tasks != "environment":
                position = PolicyPosition(fen=found.fen, source="selfplay")
                rows.append(Row(id=name, payload=position, split="train"))
            if self._config.tasks != "policy":
                move = found.move or random_move(read_board(found.fen), seed_of(found.fen))
                history = (*found.history, move)[-shown:] if shown else ()
                step = EnvironmentStep(fen=found.fen, uci=move, history=history)
                rows.append(Row(id=f"{name}/env", payload=step, split="train"))
        return rows
