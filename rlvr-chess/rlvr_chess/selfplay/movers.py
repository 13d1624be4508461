"""Who moves: a policy, an engine, a player at random, or one of these now and then."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import attrs
import chess
from attrs import Factory, field, frozen

from rlvr import Completion, Policy, SamplingParams, seed_of
from rlvr_chess.asking import complete, line_of
from rlvr_chess.config import Profile
from rlvr_chess.engine.pool import EnginePool
from rlvr_chess.questions.grammar import eval_win_probability, policy_prompt
from rlvr_chess.values import MOST

LEAST_RETRY_TEMPERATURE = 0.7
"""A mover that is asked again would say the same where it is greedy."""


@frozen(kw_only=True)
class Turn:
    """
    A mover is to move.

    Attributes:
        board: The position with its history; not to be changed.
        seed: Of this turn, whatever the attempt.
        ply: Half-moves since the opening.
        attempt: 0; then how often this turn was asked before.
    """

    board: chess.Board
    seed: int
    ply: int = 0
    attempt: int = 0

    @property
    def draw(self) -> int:
        """Seed of this attempt."""
        return seed_of(self.seed, self.attempt)


@frozen(kw_only=True)
class Move:
    """
    What a mover says.

    Attributes:
        uci: The move, perhaps illegal; None where the answer could not be read.
        win_probability: What the mover thinks it is worth (0..1, its own view), None: unsaid.
        text: The whole answer, for people.
        is_random: It was drawn at random in the place of what a mover would play.
    """

    uci: str | None
    win_probability: float | None = None
    text: str = ""
    is_random: bool = False


class Mover(Protocol):
    """Moves in many games at once. Equal turns give equal moves, whatever stands beside them."""

    @property
    def name(self) -> str:
        """For people."""

    async def moves(self, turns: Sequence[Turn]) -> Sequence[Move]:
        """One answer a turn, in order."""


def random_move(board: chess.Board, seed: int) -> str:
    """A legal move in UCI, each as likely as any other."""
    return random.Random(seed).choice(sorted(move.uci() for move in board.legal_moves))


@frozen
class RandomMover:
    """Plays any legal move, each as likely as any other."""

    name: str = "random"

    async def moves(self, turns: Sequence[Turn]) -> list[Move]:
        return [Move(uci=random_move(t.board, t.draw)) for t in turns]


def warm(temperature: float, *, first: float, plies: int) -> Callable[[int], float]:
    """Temperature by ply since the opening: `first` for so many plies, then `temperature`."""
    return lambda ply: first if ply < plies else temperature


@frozen
class PolicyMover:
    """
    Plays the `B` of a policy's line.

    `temperature` is by ply since the opening; None: that of `params` throughout.
    """

    policy: Policy
    params: SamplingParams
    profile: Profile = "canonical"
    temperature: Callable[[int], float] | None = None
    name: str = "policy"

    async def moves(self, turns: Sequence[Turn]) -> list[Move]:
        """All turns at once."""
        asked = (
            (policy_prompt(turn.board.fen(), self.profile), self._params(turn), turn.draw)
            for turn in turns
        )
        answers = await complete(self.policy, asked)
        return [self._read(turn, answer) for turn, answer in zip(turns, answers, strict=True)]

    def _params(self, turn: Turn) -> SamplingParams:
        drawn = self.temperature(turn.ply) if self.temperature else self.params.temperature
        if turn.attempt:
            drawn = max(drawn, LEAST_RETRY_TEMPERATURE)
        return attrs.evolve(self.params, temperature=drawn)

    def _read(self, turn: Turn, answer: Completion) -> Move:
        line = line_of(answer, min(MOST, turn.board.legal_moves.count()), self.profile)
        if line is None:
            return Move(uci=None, text=answer.text)
        said = dict(zip(line.moves, line.evals, strict=True)).get(line.best)
        worth = None if said is None else eval_win_probability(said)
        return Move(uci=line.best, win_probability=worth, text=answer.text)


@frozen
class EngineMover:
    """Plays what an engine finds at so many nodes; `elo` None: at full strength."""

    pool: EnginePool
    nodes: int = field(kw_only=True)
    elo: int | None = field(default=None, kw_only=True)
    name: str = field(kw_only=True)

    @name.default
    def _name(self) -> str:
        return f"engine nodes {self.nodes}" + (f" elo {self.elo}" if self.elo else "")

    async def moves(self, turns: Sequence[Turn]) -> list[Move]:
        """As many searches at a time as the pool has processes."""
        ask = partial(self.pool.best_move, nodes=self.nodes, elo=self.elo)
        found = await asyncio.gather(*(ask(turn.board.fen()) for turn in turns))
        return [Move(uci=uci) for uci in found]


@frozen
class MixMover:
    """
    Asks a mover with probability `share`, else plays at random: a weaker mover, or blunders.

    Each turn is drawn by itself; a turn in which the mover was asked is its own at every attempt.
    """

    mover: Mover
    share: float
    name: str = Factory(lambda self: f"{self.mover.name} {self.share:.0%}", takes_self=True)

    async def moves(self, turns: Sequence[Turn]) -> list[Move]:
        """One answer a turn, in order."""
        asks = [random.Random(seed_of(turn.seed, "mix")).random() < self.share for turn in turns]
        asked = [turn for turn, ask in zip(turns, asks, strict=True) if ask]
        found = iter(await self.mover.moves(asked) if asked else [])
        return [
            next(found) if ask else Move(uci=random_move(turn.board, turn.draw), is_random=True)
            for turn, ask in zip(turns, asks, strict=True)
        ]
