"""Who moves: a policy, an engine, a player at random, or one of these now and then."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import chess
from attrs import frozen

from rlvr.parts import Policy
from rlvr.types import GenerateRequest, Message, SamplingParams
from rlvr_chess.grammar import Profile, eval_win_probability, parse_policy, policy_prompt

LEAST_RETRY_TEMPERATURE = 0.7
"""A mover that is asked again would say the same where it is greedy."""


def seed_of(*parts: object) -> int:
    """A 63-bit seed that depends on every part, equal on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


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

    name: str

    async def moves(self, turns: Sequence[Turn]) -> Sequence[Move]:
        """One answer a turn, in order."""


class Opponent(Protocol):
    """The part of `engine.pool.EnginePool` that plays."""

    async def best_move(
        self, fen: str, nodes: int = 0, elo: int | None = None, skill: int | None = None
    ) -> str: ...


def random_move(board: chess.Board, seed: int) -> str:
    """A legal move in UCI, each as likely as any other."""
    return random.Random(seed).choice(sorted(move.uci() for move in board.legal_moves))


class RandomMover:
    """Plays any legal move, each as likely as any other."""

    def __init__(self, name: str = "random") -> None:
        self.name = name

    async def moves(self, turns: Sequence[Turn]) -> list[Move]:
        return [Move(uci=random_move(t.board, t.draw)) for t in turns]


class PolicyMover:
    """
    Plays the `B` of a policy's line.

    Args:
        policy: Sampling handle.
        params: How tokens are drawn.
        profile: Wording of prompt and answer.
        temperature: Temperature by ply since the opening; None: that of `params` throughout.
        name: For people.
    """

    def __init__(
        self,
        policy: Policy,
        params: SamplingParams,
        *,
        profile: Profile = "canonical",
        temperature: Callable[[int], float] | None = None,
        name: str = "policy",
    ) -> None:
        self.name = name
        self._policy = policy
        self._params = params
        self._profile: Profile = profile
        self._temperature = temperature

    async def moves(self, turns: Sequence[Turn]) -> list[Move]:
        """All turns in one batch."""
        completions = await self._policy.generate([self._request(turn) for turn in turns])
        return [
            self._read(turn, done.text, is_whole=done.finish == "stop")
            for turn, done in zip(turns, completions, strict=True)
        ]

    def _request(self, turn: Turn) -> GenerateRequest:
        params = self._params
        if self._temperature is not None:
            params = attrs.evolve(params, temperature=self._temperature(turn.ply))
        if turn.attempt and params.temperature < LEAST_RETRY_TEMPERATURE:
            params = attrs.evolve(params, temperature=LEAST_RETRY_TEMPERATURE)
        prompt = Message(role="user", content=policy_prompt(turn.board.fen(), self._profile))
        tokens = self._policy.tokenizer.render([prompt])
        return GenerateRequest(prompt=tokens, params=params, seed=turn.draw)

    def _read(self, turn: Turn, text: str, *, is_whole: bool) -> Move:
        count = min(5, turn.board.legal_moves.count())
        answer = parse_policy(text, count, self._profile) if is_whole else None
        if answer is None:
            return Move(uci=None, text=text)
        said = dict(zip(answer.moves, answer.evals, strict=True)).get(answer.best)
        worth = None if said is None else eval_win_probability(said)
        return Move(uci=answer.best, win_probability=worth, text=text)


class EngineMover:
    """
    Plays what an engine finds.

    Args:
        pool: An open `engine.pool.EnginePool`.
        nodes: Nodes of a search.
        elo: Its `UCI_Elo`; None: full strength.
        skill: Its `Skill Level`; None: full strength.
        name: For people.
    """

    def __init__(
        self,
        pool: Opponent,
        *,
        nodes: int,
        elo: int | None = None,
        skill: int | None = None,
        name: str = "",
    ) -> None:
        self.name = name or f"engine nodes {nodes}" + (f" elo {elo}" if elo else "")
        self._pool = pool
        self._nodes, self._elo, self._skill = nodes, elo, skill

    async def moves(self, turns: Sequence[Turn]) -> list[Move]:
        """As many searches at a time as the pool has processes."""
        found = await asyncio.gather(
            *(
                self._pool.best_move(
                    t.board.fen(), nodes=self._nodes, elo=self._elo, skill=self._skill
                )
                for t in turns
            )
        )
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
        self._random = RandomMover()

    async def moves(self, turns: Sequence[Turn]) -> list[Move]:
        """One answer a turn, in order; whoever was asked first is asked again."""
        asks = [self._asks(turn) for turn in turns]
        picked = {
            True: [t for t, ask in zip(turns, asks, strict=True) if ask],
            False: [t for t, ask in zip(turns, asks, strict=True) if not ask],
        }
        found = {
            True: iter(await self._mover.moves(picked[True]) if picked[True] else []),
            False: iter(_marked(await self._random.moves(picked[False]))),
        }
        return [next(found[ask]) for ask in asks]

    def _asks(self, turn: Turn) -> bool:
        return random.Random(seed_of(turn.seed, "mix")).random() < self._share


def _marked(moves: Sequence[Move]) -> list[Move]:
    return [attrs.evolve(move, is_random=True) for move in moves]
