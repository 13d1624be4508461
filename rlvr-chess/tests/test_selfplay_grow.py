from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import chess
from attrs import evolve

from rlvr import SamplingParams
from rlvr.testing.fakes import ScriptedPolicy
from rlvr_chess.config import ChessConfig
from rlvr_chess.fen import read_board
from rlvr_chess.questions.grammar import policy_text
from rlvr_chess.questions.records import EnvironmentStep, PolicyPosition
from rlvr_chess.selfplay.grow import OPENING_SHARE, PER_GAME, SelfPlay

CONFIG = ChessConfig(selfplay_games=3, selfplay_plies=16, selfplay_keep=40, selfplay_age=2)
PARAMS = SamplingParams(max_tokens=96, temperature=0.8, group_size=8)


def _answers(prompt: str, seed: int) -> str:
    """A legal line, except that one answer in four is broken."""
    board = chess.Board(prompt.removeprefix("P: ").removesuffix(" M:"))
    legal = sorted(m.uci() for m in board.legal_moves)
    moves = legal[:5]
    line = policy_text(moves, ["0.10"] * len(moves), moves[seed % len(moves)])
    return line if seed % 4 else line + "?"


def _grow(
    config: ChessConfig, memory: Mapping[str, Any], step: int, allowed: Any = lambda fen: True
) -> Mapping[str, Any]:
    task = SelfPlay(config, PARAMS, allowed)
    grown = asyncio.run(task.discover(ScriptedPolicy(_answers), memory, seed=100 + step, step=step))
    return dict(json.loads(json.dumps(grown)))  # as a checkpoint keeps it


def test_off_by_default() -> None:
    """Without games nothing is played and the memory stays as it is."""
    policy = ScriptedPolicy(_answers)
    task = SelfPlay(ChessConfig(), PARAMS, lambda fen: True)
    assert asyncio.run(task.discover(policy, {}, seed=0, step=0)) == {}
    assert policy.requests == []
    assert task.discovered({}) == []


def test_games_become_problems_of_both_tasks() -> None:
    """Positions of the games are asked for a move, and for what a legal move does in them."""
    rows = SelfPlay(CONFIG, PARAMS, lambda fen: True).discovered(_grow(CONFIG, {}, 0))
    policy = [r for r in rows if isinstance(r.payload, PolicyPosition)]
    environment = [r for r in rows if isinstance(r.payload, EnvironmentStep)]
    assert len(policy) == len(environment)
    assert len(policy) > CONFIG.selfplay_games
    assert len(policy) <= PER_GAME * CONFIG.selfplay_games
    assert len({r.id for r in rows}) == len(rows)
    assert all(r.id.startswith("selfplay/") and r.split == "train" for r in rows)
    for row in environment:
        assert isinstance(row.payload, EnvironmentStep)
        board = read_board(row.payload.fen)
        assert chess.Move.from_uci(row.payload.uci) in board.legal_moves
        assert row.payload.history == ()
    assert all(r.payload.values is None for r in policy if isinstance(r.payload, PolicyPosition))


def test_growing_is_a_function_of_its_arguments() -> None:
    """Equal memory, seed and step give equal memory; the next step adds to it and ages it."""
    first = _grow(CONFIG, {}, 0)
    assert _grow(CONFIG, {}, 0) == first
    second = _grow(CONFIG, first, 1)
    assert _grow(CONFIG, json.loads(json.dumps(first)), 1) == second
    steps = {p["step"] for p in second["positions"]}
    assert steps == {0, 1}
    third = _grow(CONFIG, second, 2)
    assert {p["step"] for p in third["positions"]} == {1, 2}, "two steps of age"


def test_buffer_keeps_its_limits() -> None:
    """Capacity and the share of one opening hold while the run goes on."""
    small = evolve(CONFIG, selfplay_keep=8, selfplay_age=99)
    memory: Mapping[str, Any] = {}
    for step in range(3):
        memory = _grow(small, memory, step)
        openings = [p["opening"] for p in memory["positions"]]
        assert 0 < len(openings) <= 8
        assert max(openings.count(o) for o in openings) <= 8 // OPENING_SHARE


def test_held_out_positions_are_never_found() -> None:
    """What the task does not allow (split test) is not in the memory, nor are its problems."""
    everything = _grow(CONFIG, {}, 0)
    fens = [p["fen"] for p in everything["positions"]]
    banned = set(fens[::2])
    rest = _grow(CONFIG, {}, 0, allowed=lambda fen: fen not in banned)
    assert banned
    assert [p["fen"] for p in rest["positions"]] == [f for f in fens if f not in banned]


def test_one_task_alone() -> None:
    """`chess.tasks` says which problems a position becomes."""
    memory = _grow(CONFIG, {}, 0)
    for tasks, kind in (("policy", PolicyPosition), ("environment", EnvironmentStep)):
        rows = SelfPlay(evolve(CONFIG, tasks=tasks), PARAMS, lambda fen: True).discovered(memory)
        assert rows
        assert all(isinstance(r.payload, kind) for r in rows)


def test_history_as_prompts_show_it() -> None:
    """With `chess.history` an environment row has the last moves, the asked one last."""
    memory = _grow(CONFIG, {}, 0)
    shown = evolve(CONFIG, tasks="environment", history=3)
    rows = SelfPlay(shown, PARAMS, lambda fen: True).discovered(memory)
    for row in rows:
        assert isinstance(row.payload, EnvironmentStep)
        assert len(row.payload.history) == 3
        assert row.payload.history[-1] == row.payload.uci


def test_games_sample_at_their_own_temperature() -> None:
    """The run's other sampling settings hold; one completion a request."""
    policy = ScriptedPolicy(_answers)
    config = evolve(CONFIG, selfplay_temperature=1.3)
    asyncio.run(SelfPlay(config, PARAMS, lambda fen: True).discover(policy, {}, seed=0, step=0))
    params = {request.params for request in policy.requests}
    assert params == {evolve(PARAMS, temperature=1.3, group_size=1)}
