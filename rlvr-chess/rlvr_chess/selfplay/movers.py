"""Who moves: a policy, an engine, a player at random, or one of these now and then."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import attrs
import chess
from attrs import frozen

from rlvr import Completion, Policy, SamplingParams
from rlvr_chess.asking import complete, line_of, seed_of
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

    Attributes:
        policy: Sampling handle.
        params: How tokens are drawn.
        profile: Wording of prompt and answer.
        temperature: Temperature by ply since the opening; None: that of `params` throughout.
        name: For people.
    """

    policy: Policy
    params: SamplingParams
    profile: Profile = "canonical"
    temperature: Callable[[int], float] | None = None
    name: str = "policy"

    async def moves(self, turns: Sequence[Turn]) -> list[Move]:
        """All turns at once."""
        prompts = [policy_prompt(turn.board.fen(), self.profile) for turn in turns]
        params = [self._params(turn) for turn in turns]
        asked = zip(prompts, params, [turn.draw for turn in turns], strict=True)
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


class EngineMover:
    """
    Plays what an engine finds.

    Args:
        pool: Open.
        nodes: Nodes of a search.
        elo: Its `UCI_Elo`; None: full strength.
        skill: Its `Skill Level`; None: full strength.
        name: For people.
    """

    def __init__(
        self,
        pool: EnginePool,
        *,
        nodes: int,
        elo: int | None = None,
        skill: int | None = None,
        name: str = "",
    ) -> None:
        self.name = name or f"engine nodes {nodes}" + (f" elo {elo}" if elo else "")
        self._best_move = partial(pool.best_move, nodes=nodes, elo=elo, skill=skill)

    async def moves(self, turns: Sequence[Turn]) -> list[Move]:
        """As many searches at a time as the pool has processes."""
        found = await asyncio.gather(*(self._best_move(turn.board.fen()) for turn in turns))
        return [Move(uci=uci) for uci in found]


class MixMover:
    """
    Asks a mover with probability `share`, else plays at random: a weaker mover, or blunders.

    Args:
        mover: Who is asked.
        share: Probability of that, in each turn by itself.
        name: For people.
    """

    def __init__(self, mover: Mover, share: float, name: str = "") -> None:
        self.name = name or f"{mover.name} {share:.0%}"
        self._mover = mover
        self._share = share

    async def moves(self, turns: Sequence[Turn]) -> list[Move]:
        """One answer a turn, in order; whoever was asked first is asked again."""
        asks = [random.Random(seed_of(turn.seed, "mix")).random() < self._share for turn in turns]
        asked = [turn for turn, ask in zip(turns, asks, strict=True) if ask]
        found = iter(await self._mover.moves(asked) if asked else [])
        return [
            next(found) if ask else Move(uci=random_move(turn.board, turn.draw), is_random=True)
            for turn, ask in zip(turns, asks, strict=True)
        ]
