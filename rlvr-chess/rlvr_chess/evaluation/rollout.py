"""The world-model rollout: the policy plays the board of a real game, on its own answers only.

It is told a move of the game and its own last FEN, and its answer is the next FEN. A state with one
error in it stays wrong, so a game ends at the first answer that is not exact.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import chess
from attrs import define, frozen

from rlvr.parts import Policy
from rlvr.types import Figure
from rlvr_chess.evaluation.asking import answer_text, ask
from rlvr_chess.evaluation.statistics import mean, rate
from rlvr_chess.grammar import Profile, environment_prompt, parse_environment
from rlvr_chess.transition import transition

HORIZONS = (1, 2, 4, 8, 16, 32)
"""Plies at which survival is reported."""
PLIES = max(HORIZONS)
MAX_TOKENS = {"canonical": 120, "rookworld": 160}


@frozen(kw_only=True)
class Walk:
    """Moves of a game from a position in it; at least `PLIES`."""

    fen: str
    moves: tuple[str, ...]


@define
class _Running:
    walk: Walk
    fen: str
    exact: int = 0
    is_over: bool = False


def walk_of(fen: str, moves: Sequence[str], key: str) -> Walk | None:
    """`PLIES` plies of a game, the first chosen by its key; None where the game is shorter."""
    if len(moves) < PLIES:
        return None
    first = random.Random(f"rollout/{key}").randrange(len(moves) - PLIES + 1)
    board = chess.Board(fen)
    for uci in moves[:first]:
        board.push_uci(uci)
    return Walk(fen=board.fen(), moves=tuple(moves[first : first + PLIES]))


async def exact_plies(
    policy: Policy, walks: Sequence[Walk], *, profile: Profile = "canonical", history: int = 0
) -> list[int]:
    """How many plies of each walk are foretold exactly before the first error, 0..`PLIES`."""
    running = [_Running(walk, walk.fen) for walk in walks]
    for ply in range(PLIES):
        going = [one for one in running if not one.is_over]
        if not going:
            break
        prompts = [
            environment_prompt(one.fen, one.walk.moves[ply], _past(one.walk, ply, history), profile)
            for one in going
        ]
        answers = await ask(policy, prompts, max_tokens=MAX_TOKENS[profile])
        for one, answer in zip(going, answers, strict=True):
            _take(one, one.walk.moves[ply], answer_text(answer), profile)
    return [one.exact for one in running]


def figures(exact: Sequence[int], note: str = "") -> list[Figure]:
    """Share of games still exact after n plies, and how many plies are exact on average."""
    found = [rate(f"rollout/exact_at_{n}", [plies >= n for plies in exact], note) for n in HORIZONS]
    about = "; ".join(filter(None, [f"of {PLIES} plies", note]))
    return [*found, mean("rollout/plies", [float(plies) for plies in exact], about)]


def _past(walk: Walk, ply: int, history: int) -> tuple[str, ...]:
    return walk.moves[max(0, ply + 1 - history) : ply + 1] if history else ()


def _take(one: _Running, uci: str, text: str | None, profile: Profile) -> None:
    truth = transition(one.fen, uci)
    said = None if text is None else parse_environment(text, profile)
    right = (truth.new_fen, truth.reward, truth.terminated, truth.truncated)
    if said is None or (said.fen, said.reward, said.terminated, said.truncated) != right:
        one.is_over = True
        return
    one.fen = said.fen
    one.exact += 1
